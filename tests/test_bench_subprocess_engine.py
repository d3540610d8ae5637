import os
from collections.abc import Sequence

import numpy as np
import pytest

from model.bench.clips import Clip
from model.bench.other_engines import Unavailable
from model.bench.paired_runs import Transcription
from model.bench.subprocess_engine import SubprocessEngine


class Counting:
    """Tells which process it is in, and how many calls it has had."""

    name = "counting"

    def __init__(self) -> None:
        self._calls = 0

    def transcribe(self, clips: Sequence[Clip]) -> list[Transcription]:
        self._calls += 1
        return [
            Transcription(f"{os.getpid()} {self._calls} {len(clip.audio)}", (), 0) for clip in clips
        ]


def missing() -> Counting:
    raise Unavailable("it is not installed")


def test_a_contender_lives_in_a_process_of_its_own() -> None:
    """One and the same for all calls; clips go there and texts come back in their order."""
    apart = SubprocessEngine("apart", Counting)
    clips = [Clip(str(n), np.zeros(n, np.float32)) for n in (3, 5)]
    first, second = apart.transcribe(clips), apart.transcribe(clips[:1])
    home, *_ = first[0].text.split()
    assert home != str(os.getpid())
    assert [one.text for one in first] == [f"{home} 1 3", f"{home} 1 5"]
    assert [one.text for one in second] == [f"{home} 2 3"]


def test_why_it_cannot_be_had_is_told() -> None:
    with pytest.raises(Unavailable, match="it is not installed"):
        SubprocessEngine("apart", missing)
