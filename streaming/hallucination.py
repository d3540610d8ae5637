"""Whether what the recogniser wrote was said: the signs of words that Whisper makes of no speech.

Judges figures alone, never the words: "Thank you." is what Whisper hears in silence, and what people say.

Measured with base. Real words: single digits, the hardest of them, reach a no-speech probability of 0.63
at most, whole sentences 0.04. Words made of silence, hum, taps, music and what else the detector takes
for speech: 0.79 … 0.95, with a mean log-probability of -0.5 (digital silence) or less.
"""

from streaming.hypothesis import Hypothesis

# Beside the reference's thresholds: silence is as good as certain, and the text not.
CERTAIN_SILENCE = 0.75
SURE = -0.4


def is_plausible(hypothesis: Hypothesis) -> bool:
    """Whether somebody said the text of `hypothesis`."""
    if hypothesis.no_speech > CERTAIN_SILENCE:
        return hypothesis.mean_logprob > SURE
    return not hypothesis.silent


def worth_showing(hypothesis: Hypothesis) -> bool:
    """Whether a partial may be shown: what is shown may become a promise, so no loop may be in it.

    A final that repeats itself is decoded again; a partial is not waited for.
    """
    return is_plausible(hypothesis) and not hypothesis.repetitive
