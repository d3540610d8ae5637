"""The open utterance: when a partial of it is due, and its newest hypothesis.

Counts samples; knows no audio, no detector and no other utterance.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streaming.hypothesis import Hypothesis
from streaming.languages import Asked
from streaming.stable_prefix import StablePrefix

# A partial of a long utterance costs more and changes less: one is due for each tenth of its length.
NEW_SHARE = 10


@dataclass(frozen=True, slots=True, eq=False)
class Decode:
    """Work for the recogniser: one span of one utterance.

    utterance: 0, 1, 2 … within the session.
    start, stop: sample indices at 16 kHz in session time; stop is exclusive, at most 30 s on.
    audio: a copy of the span, [stop - start], 16 kHz mono in [-1, 1].
    final: whether the utterance has ended; else the work may be superseded.
    early: silence has begun; if it lasts, the final has the same span.
    voiced: samples from its first speech to its last.
    language: a code, several to choose from, or None to detect. language_hint: as of `Request`.
    prefix: words that its text must begin with; the client was promised them.
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
    """An open utterance. All positions are sample indices in session time."""

    number: int
    start: int
    due: int  # a partial is due when this much has come
    given: int  # end of the last decode given out
    stop: int = -1  # its end
    paused: int = -1  # its end, if the silence lasts; -1 once speech goes on
    shown: int = -1  # end of the newest accepted partial's span
    language: str | None = None  # of the newest plausible partial
    early: tuple[Decode, Hypothesis] | None = None  # the final, if the utterance ends where it does
    caption: StablePrefix = field(default_factory=StablePrefix)

    def note_speech(self, speech_end: int, voiced: int, interval: int) -> None:
        """Speech has come up to `speech_end`: a partial is due after enough that is new."""
        if speech_end - self.due >= max(interval, voiced // NEW_SHARE):
            self.due = speech_end

    def final_at(self, stop: int) -> tuple[Decode, Hypothesis] | None:
        """The early final, if the utterance ends at `stop` and it has that span."""
        return self.early if self.early is not None and self.early[0].stop == stop else None
