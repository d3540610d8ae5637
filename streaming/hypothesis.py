"""What the recogniser says of a span of an utterance, and the `final` message that becomes of it.

No decision is taken here: whether a text is believed, and what of it is shown, is for others to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streaming.protocol import SAMPLE_RATE, DecodeFigures, Final, Word

SAMPLE_DIGITS = 7  # after the point: any sample's time at 16 kHz in seconds is exact


class TimedWord(Protocol):
    """A word and when it was said, in seconds from the span's first sample."""

    @property
    def text(self) -> str:
        """As it is written."""
        ...

    @property
    def start(self) -> float:
        """Its beginning."""
        ...

    @property
    def end(self) -> float:
        """Its end."""
        ...

    @property
    def probability(self) -> float:
        """The recogniser's own."""
        ...


class Hypothesis(Protocol):
    """What the recogniser says of a span, and what that took."""

    @property
    def text(self) -> str:
        """The transcript; empty where there was no speech."""
        ...

    @property
    def certain(self) -> int:
        """Characters of it before the first of which the recogniser was not sure."""
        ...

    @property
    def language(self) -> str:
        """The code of the language spoken."""
        ...

    @property
    def language_probability(self) -> float | None:
        """How sure that is; None where it was given."""
        ...

    @property
    def no_speech(self) -> float:
        """Probability that the span holds no speech."""
        ...

    @property
    def mean_logprob(self) -> float:
        """Mean natural log-probability of the tokens."""
        ...

    @property
    def compression_ratio(self) -> float:
        """Bytes of the text to deflated bytes."""
        ...

    @property
    def temperature(self) -> float:
        """At which it was decoded."""
        ...

    @property
    def looped(self) -> bool:
        """Whether it is what is left of a text that went round in circles."""
        ...

    @property
    def timed(self) -> Sequence[TimedWord] | None:
        """Its words with their times, where they were asked for."""
        ...

    @property
    def rounds(self) -> int:
        """Target passes."""
        ...

    @property
    def proposed(self) -> int:
        """Tokens that were drafted."""
        ...

    @property
    def accepted(self) -> int:
        """Drafted tokens that the target accepted."""
        ...

    @property
    def reused(self) -> int:
        """Accepted tokens that came from the hypothesis before."""
        ...


@dataclass(frozen=True, slots=True)
class Nothing:
    """The hypothesis of an utterance that could not be decoded."""

    language: str
    text: str = ""
    certain: int = 0
    language_probability: float | None = None
    no_speech: float = 0.0
    mean_logprob: float = 0.0
    compression_ratio: float = 0.0
    temperature: float = 0.0
    looped: bool = False
    timed: Sequence[TimedWord] | None = None
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    reused: int = 0


def final_message(
    utterance: int, start: int, stop: int, hypothesis: Hypothesis, text: str, ms: float
) -> Final:
    """The last word on [start, stop), samples of session time: `text`, with the hypothesis' figures.

    Words are told where `text` is the hypothesis' own: of another text it does not know the times.
    """
    seconds = start / SAMPLE_RATE
    words = None
    if hypothesis.timed is not None:
        timed = hypothesis.timed if text == hypothesis.text.strip() else ()
        words = [
            Word(
                text=word.text,
                start=round(seconds + word.start, SAMPLE_DIGITS),
                end=round(seconds + word.end, SAMPLE_DIGITS),
                probability=round(word.probability, 4),
            )
            for word in timed
        ]
    return Final(
        utterance=utterance,
        start=seconds,
        end=stop / SAMPLE_RATE,
        text=text,
        language=hypothesis.language,
        no_speech=round(hypothesis.no_speech, 4),
        mean_logprob=round(hypothesis.mean_logprob, 4),
        temperature=hypothesis.temperature,
        compression_ratio=round(hypothesis.compression_ratio, 2),
        words=words,
        decode=DecodeFigures(
            rounds=hypothesis.rounds,
            proposed=hypothesis.proposed,
            accepted=hypothesis.accepted,
            reused=hypothesis.reused,
            ms=round(ms, 1),
        ),
    )
