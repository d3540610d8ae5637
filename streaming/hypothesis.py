"""The hypothesis of a span of an utterance, and the `final` message made of it.

The file decides nothing: streaming/hallucination.py filters texts, streaming/stable_prefix.py shows them.
"""

from dataclasses import dataclass

from streaming.protocol import SAMPLE_RATE, DecodeFigures, Final, Word

SAMPLE_DIGITS = 7  # after the point: any sample's time at 16 kHz in seconds is exact


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word as it is written; start, end: seconds from the span's first sample."""

    text: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The recogniser's text for a span, with its figures.

    text: the transcript; empty where there was no speech, or nothing could be decoded.
    certain: characters of it before the first token that the recogniser doubted.
    language: a code. language_probability: of the detected one; None where the language was given.
    no_speech: probability that the span holds no speech. mean_logprob: natural, of the tokens.
    silent: whether Whisper's reference takes the text for silence by these two figures.
    compression_ratio: bytes of the text to deflated bytes.
    looped: whether a loop was cut from the text.
    repetitive: that, or a text that Whisper's reference would decode again for its compression ratio.
    timed: its words, where `start` asked for them. temperature: at which it was decoded.
    rounds: target passes. proposed, accepted: draft tokens; reused: accepted tokens that came from the
        hypothesis before.
    voiced: seconds of speech in a final's span; covered: those that the text accounts for.
    """

    text: str
    language: str
    certain: int = 0
    language_probability: float | None = None
    no_speech: float = 0.0
    mean_logprob: float = 0.0
    silent: bool = False
    compression_ratio: float = 0.0
    looped: bool = False
    repetitive: bool = False
    timed: tuple[TimedWord, ...] | None = None
    temperature: float = 0.0
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    reused: int = 0
    voiced: float = 0.0
    covered: float = 0.0


def rounded(probability: float | None) -> float | None:
    """A probability as it goes onto the wire."""
    return None if probability is None else round(probability, 4)


def final_message(
    utterance: int, start: int, stop: int, hypothesis: Hypothesis, text: str, ms: float
) -> Final:
    """The `final` of [start, stop), samples of session time: `text`, with the hypothesis' figures.

    It has words where `text` is the hypothesis' own: another text has no times. No text covers nothing.
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
        language_probability=rounded(hypothesis.language_probability),
        no_speech=round(hypothesis.no_speech, 4),
        mean_logprob=round(hypothesis.mean_logprob, 4),
        temperature=hypothesis.temperature,
        compression_ratio=round(hypothesis.compression_ratio, 2),
        words=words,
        voiced=round(hypothesis.voiced, 3),
        covered=round(hypothesis.covered if text else 0.0, 3),
        decode=DecodeFigures(
            rounds=hypothesis.rounds,
            proposed=hypothesis.proposed,
            accepted=hypothesis.accepted,
            reused=hypothesis.reused,
            ms=round(ms, 1),
        ),
    )
