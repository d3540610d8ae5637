"""Figures and words of finals as foreign protocols tell them."""

import math
import re

from streaming.protocol import Final, Word

_MARKS = re.compile(r"^\W+|\W+$")


def confidence(final: Final) -> float:
    """Of a final: the mean of its words' probabilities; without words that of its tokens. 0 of an empty one."""
    if not final.text:
        return 0.0
    if final.words:
        mean = sum(word.probability for word in final.words) / len(final.words)
    else:
        mean = math.exp(min(final.mean_logprob, 0.0))
    return round(mean, 4)


def bare(word: Word) -> str:
    """A word in lower case, without the marks around it."""
    return _MARKS.sub("", word.text.strip()).lower() or word.text.strip()


def milliseconds(seconds: float) -> int:
    """A time as a whole number of milliseconds."""
    return round(seconds * 1000)
