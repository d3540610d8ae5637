"""A contender in a process of its own, so that two libraries' thread pools do not slow each other.

In a process with more threads than cores, as with a pool for each of two libraries, libgomp puts waiting
threads to sleep at once, and both libraries become slower: with CTranslate2 beside torch on two cores
captiond's int8 target took 1.6 times as long. Separate processes do not count each other's threads.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from model.bench.clips import Clip
from model.bench.paired_runs import Contender, Transcription

_contender: Contender | None = None  # in the other process


class SubprocessEngine:
    """The contender that `make`, a picklable function, builds there; its errors are raised here."""

    def __init__(self, name: str, make: Callable[[], Contender]) -> None:
        self.name = name
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self._pool.submit(_start, make).result()

    def transcribe(self, clips: Sequence[Clip]) -> list[Transcription]:
        """See `model.bench.paired_runs.Contender`; the times include the transfer."""
        return self._pool.submit(_transcribe, list(clips)).result()


def _start(make: Callable[[], Contender]) -> None:
    global _contender  # noqa: PLW0603  (a process has no other place for what outlives a call)
    _contender = make()


def _transcribe(clips: list[Clip]) -> list[Transcription]:
    assert _contender is not None
    return _contender.transcribe(clips)
