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

# Silence in front makes noise more like speech: invented words have a no-speech probability of 0.43 … 0.63
# and a mean log-probability of -1.12 or less. Of digits that a stream begins with, right ones have 0.57 at
# most, and above 0.4 a mean of -0.91 at least.
LED_SILENCE = 0.4
LED_SURE = -1.0


def is_plausible(hypothesis: Hypothesis, *, led: bool = False) -> bool:
    """Whether somebody said the text of `hypothesis`; led: its decode had silence put in front."""
    if led and hypothesis.no_speech > LED_SILENCE and hypothesis.mean_logprob < LED_SURE:
        return False
    if hypothesis.no_speech > CERTAIN_SILENCE:
        return hypothesis.mean_logprob > SURE
    return not hypothesis.silent


def worth_showing(hypothesis: Hypothesis, *, led: bool = False) -> bool:
    """Whether a partial may be shown: its words may become stable, so it may contain no loop.

    A final that repeats itself is decoded again; a partial is dropped.
    """
    return is_plausible(hypothesis, led=led) and not hypothesis.repetitive
