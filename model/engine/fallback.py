"""Transcripts that failed: loops, and Whisper's thresholds for decoding again at a higher temperature.

Pure functions of tokens, texts and numbers. The thresholds and the temperatures are those of Whisper's
reference implementation (openai/whisper, transcribe.py). The cut of a loop is captiond's: the reference
notices one only when the context is full.
"""

import zlib
from collections.abc import Sequence

MOST_COMPRESSION = 2.4  # UTF-8 bytes to deflated bytes; above it a text repeats itself
LEAST_LOGPROB = -1.0  # mean natural log-probability of the tokens
SILENCE = 0.6  # no-speech probability from which a doubtful text is taken for silence
DOUBTED = -0.7  # log-probability below which a later hypothesis may well have another token: 1 in 2
FALLBACK_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)  # tried after a greedy transcript that failed

# A loop is cut when its copies are this many, and cover so many tokens: "no" said thirty times in a row
# survives, and so does a refrain of three lines.
COPIES = 4
COVERED = 32


def compression_ratio(text: str) -> float:
    """Bytes of `text` for each byte of its deflated form; 0 for an empty one."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0


def is_silence(no_speech: float, mean_logprob: float) -> bool:
    """Whether the reference takes the transcript for one of silence."""
    return no_speech > SILENCE and mean_logprob < LEAST_LOGPROB


def is_repetitive(text: str) -> bool:
    """Whether the reference finds that the transcript repeats itself."""
    return compression_ratio(text) > MOST_COMPRESSION


def failed(text: str, mean_logprob: float, no_speech: float) -> bool:
    """Whether the reference decodes again, at a higher temperature."""
    doubtful = mean_logprob < LEAST_LOGPROB or is_repetitive(text)
    return doubtful and not is_silence(no_speech, mean_logprob)


def repetition_start(tokens: Sequence[int]) -> int | None:
    """The index at which a loop's second copy begins, if `tokens` end in a loop; else None.

    A loop: at least COPIES copies of one sequence, COVERED tokens or more in all, and nothing behind
    them but the beginning of one more copy.
    """
    for period in range(1, len(tokens) // COPIES + 1):
        wanted = max(COPIES * period, COVERED)
        if wanted > len(tokens):
            continue
        tail = tokens[-wanted:]
        if tail[period:] == tail[:-period]:
            return _first_copy(tokens, period) + period
    return None


def _first_copy(tokens: Sequence[int], period: int) -> int:
    """The index at which the periodic tail of `tokens` begins."""
    start = len(tokens) - period
    while start > 0 and tokens[start - 1] == tokens[start - 1 + period]:
        start -= 1
    return start
