"""The utterance that is being spoken: when it is worth decoding again, and what it seems to say so far.

Counts samples; knows no audio, no detector and no final of others.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streaming.hypothesis import Hypothesis
from streaming.languages import Asked
from streaming.stable_prefix import StablePrefix

# A partial of a long utterance costs more and changes less: one for each tenth of what was spoken.
NEW_SHARE = 10


@dataclass(frozen=True, slots=True, eq=False)
class Decode:
    """Work for the recogniser: one span of one utterance.

    utterance: 0, 1, 2 … within the session.
    start, stop: sample indices at 16 kHz in session time; stop is exclusive, at most 30 s on.
    audio: a copy of the span, [stop - start], 16 kHz mono in [-1, 1].
    final: whether the utterance has ended; else the work may be superseded.
    early: silence has begun; should it last, a final of the same span will be asked for.
    voiced: samples from its first speech to its last.
    language: a code, several to choose from, or None to detect; expected: what would be no surprise.
    prefix: words that its text must begin with: promised to the client.
    """

    utterance: int
    start: int
    stop: int
    audio: NDArray[np.float32]
    final: bool
    early: bool = False
    voiced: int = 0
    language: Asked = None
    language_hint: str | None = None
    prefix: str = ""


@dataclass(slots=True)
class Utterance:
    """One that is open. All positions are sample indices in session time."""

    number: int
    start: int
    due: int  # up to where a partial is due
    given: int  # up to where a decode has been given out
    stop: int = -1  # where it ended
    paused: int = -1  # where it will end if the silence lasts, until speech goes on
    shown: int = -1  # up to where the newest partial accepted had heard
    language: str | None = None  # of the newest partial that was believed
    early: tuple[Decode, Hypothesis] | None = None  # the final, if the utterance ends where it does
    caption: StablePrefix = field(default_factory=StablePrefix)

    def note_speech(self, speech_end: int, voiced: int, interval: int) -> None:
        """Speech has been heard up to `heard`: a partial is due after enough that is new."""
        if speech_end - self.due >= max(interval, voiced // NEW_SHARE):
            self.due = speech_end

    def final_at(self, stop: int) -> tuple[Decode, Hypothesis] | None:
        """What has been decoded already, should the utterance end at `stop`."""
        return self.early if self.early is not None and self.early[0].stop == stop else None
