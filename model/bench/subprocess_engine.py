"""A contender in a process of its own, so that one library's threads are not in another's way.

libgomp lets threads that wait for work sleep at once where a process has more of them than there
are cores, as it does once two libraries have a pool each: from then on both are slower, whoever
computes. Seen with CTranslate2 beside torch on two cores: captiond's int8 target took 1.6 times as
long. Between processes nothing is counted together, and a pool at rest costs nothing.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from model.bench.clips import Clip
from model.bench.paired_runs import Contender, Transcription

_here: Contender | None = None  # in the other process


class SubprocessEngine:
    """What `make` makes, there. Raises what that raises. make: a function that can be pickled."""

    def __init__(self, name: str, make: Callable[[], Contender]) -> None:
        self.name = name
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self._pool.submit(_begin, make).result()

    def read(self, clips: Sequence[Clip]) -> list[Transcription]:
        """See `model.bench.paired_runs.Contender`; that the clips go there and the texts come back counts."""
        return self._pool.submit(_read, list(clips)).result()


def _begin(make: Callable[[], Contender]) -> None:
    global _here  # noqa: PLW0603  (a process has no other place for what outlives a call)
    _here = make()


def _read(clips: list[Clip]) -> list[Transcription]:
    assert _here is not None
    return _here.read(clips)
