"""Hallucinations: text that Whisper writes where nobody spoke.

The filter judges figures, never words: Whisper writes "Thank you." for silence, and people say it.

Measured with base: for single digits, the hardest real words, the no-speech probability is 0.63 at
most, for whole sentences 0.04. For silence, hum, taps, music and whatever else the detector takes for
speech it is 0.79 … 0.95, with a mean log-probability of -0.5 (digital silence) or less.
"""

from streaming.hypothesis import Hypothesis

# Beside the reference's thresholds: silence is nearly certain, the text is not.
CERTAIN_SILENCE = 0.75
SURE = -0.4


def is_plausible(hypothesis: Hypothesis) -> bool:
    """Whether somebody said the text of `hypothesis`."""
    if hypothesis.no_speech > CERTAIN_SILENCE:
        return hypothesis.mean_logprob > SURE
    return not hypothesis.silent


def worth_showing(hypothesis: Hypothesis) -> bool:
    """Whether a partial may be shown: its words may become stable, so it may contain no loop.

    A final that repeats itself is decoded again; a partial is dropped.
    """
    return is_plausible(hypothesis) and not hypothesis.repetitive
