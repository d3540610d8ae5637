"""Successive hypotheses of one utterance in, the text to show and its stable prefix out.

Compares text alone: no samples, no times and no final is known here.
"""

import re

# Han and kana are written without spaces: each character is a word of its own here.
_IDEOGRAPHS = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
_WORD = re.compile(rf"\s*(?:[{_IDEOGRAPHS}]|[^\s{_IDEOGRAPHS}]+)")
_TRAILING_MARKS = re.compile(r"\W+\Z")
_INSIDE_WORD = re.compile(rf"[^\W{_IDEOGRAPHS}]{{2}}")


class StablePrefix:
    """What two successive hypotheses agree on, word by word, is stable and never shrinks.

    Words agree when they are the same in every character, case and punctuation included
    (LocalAgreement-2, Liu et al. 2020). Punctuation after the last agreed word is not promised:
    Whisper closes every partial with a full stop and takes it back in the next.

    This is the `revise` promise: the final is not bound by the stable prefix, but partials are. A
    hypothesis that contradicts it is not shown; the text before stays on screen until a later
    hypothesis begins with the stable prefix again, or until the final replaces it.
    """

    def __init__(self) -> None:
        self._previous: list[str] = []
        self._text = ""
        self._stable = 0

    def update(self, text: str) -> tuple[str, int]:
        """Take the next hypothesis; return the text to show and how many characters are stable."""
        words = _WORD.findall(text)
        agreed = 0
        for word, before in zip(words, self._previous, strict=False):
            if word != before:
                break
            agreed += len(word)
        self._previous = words
        if self._keeps_stable(text):
            self._text = text
            settled = _TRAILING_MARKS.sub("", text[:agreed])
            self._stable = max(self._stable, len(settled))
        return self._text, self._stable

    def _keeps_stable(self, text: str) -> bool:
        if self._stable == 0:
            return True
        longer_word = _INSIDE_WORD.match(text, self._stable - 1)  # "cat", then "category"
        return text.startswith(self._text[: self._stable]) and longer_word is None
