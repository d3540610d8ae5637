"""Successive hypotheses of one utterance in, the text to show and its stable prefix out.

Compares text alone; it knows no samples, no times and no final.
"""

import re
from itertools import accumulate

# Han and kana are written without spaces: each character counts as a word.
IDEOGRAPHS = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
_WORD = re.compile(rf"\s*(?:[{IDEOGRAPHS}]|[^\s{IDEOGRAPHS}]+)")
_TRAILING_MARKS = re.compile(r"\W+\Z")
_NO_LETTER = re.compile(r"\W+")

UNSTABLE_WORDS = 1  # words: the newest one of a hypothesis may be cut off in the middle
WITHHELD = 1  # words: it is not shown until another follows, for it often becomes another word


class StablePrefix:
    """The stable prefix: words on which two successive hypotheses agree. It never shrinks.

    Words agree when they have the same letters and digits (LocalAgreement-2, Liu et al. 2020);
    the last words of a hypothesis are not stable, nor the marks behind the last stable word: Whisper
    ends every partial with a full stop and takes it back in the next.

    The stable prefix binds partials. Where a hypothesis contradicts it, the text shown is the stable
    prefix and the hypothesis' words behind it: they continue from the place at which the edit distance
    between the stable words and the hypothesis' beginning is least. So a word that became stable too
    soon holds up none of those that follow.
    """

    def __init__(self) -> None:
        self._stable: list[str] = []  # words, each with the space before it
        self._tail: list[str] = []  # bare words that the last hypothesis had behind them

    @property
    def stable(self) -> str:
        """The stable text."""
        return "".join(self._stable)

    def bind(self, text: str) -> str:
        """The stable prefix and the words of `text` behind it."""
        words = _WORD.findall(text)
        place = self._place(words)
        return self.stable + self._marks_before(words, place) + "".join(words[place:])

    def update(self, text: str, certain: int, *, whole: bool = False) -> tuple[str, int]:
        """Take the next hypothesis; return the text to show and how many characters are stable.

        certain: characters of it before the first doubted token; words behind them are shown once the
        next hypothesis has them, too. whole: silence has followed, so all is shown.
        """
        words = _WORD.findall(text)
        place = self._place(words)
        marks = self._marks_before(words, place)
        sure = _within(words, certain) - place
        tail = words[place:]
        bare = [_bare(word) for word in tail]
        same = _agreeing(bare, self._tail)
        agreed = min(same, max(len(tail) - UNSTABLE_WORDS, 0))
        shown = tail if whole else tail[: max(same, min(sure, len(tail) - WITHHELD))]
        line = self.stable + (marks if shown else "") + "".join(shown)
        if agreed:
            if self._stable:
                self._stable[-1] += marks
            self._stable += tail[:agreed]
            self._stable[-1] = _TRAILING_MARKS.sub("", self._stable[-1])
        self._tail = bare[agreed:]
        stable = self.stable
        if not whole:
            line = stable + _TRAILING_MARKS.sub("", line[len(stable) :])
        return line, len(stable)

    def _marks_before(self, words: list[str], place: int) -> str:
        """The punctuation of `words` behind the last stable word."""
        if not place or not self._stable or _bare(words[place - 1]) != _bare(self._stable[-1]):
            return ""
        found = _TRAILING_MARKS.search(words[place - 1])
        return found.group() if found else ""

    def _place(self, words: list[str]) -> int:
        """How many of `words` match the stable words best; among equals the number nearest to theirs."""
        row = list(range(len(words) + 1))
        bare = [_bare(word) for word in words]
        for word in map(_bare, self._stable):
            above, row[0] = row[0], row[0] + 1
            for index, other in enumerate(bare, 1):
                diagonal = above + (word != other)
                above = row[index]
                row[index] = min(diagonal, above + 1, row[index - 1] + 1)
        count = len(self._stable)
        return min(range(len(row)), key=lambda place: (row[place], abs(place - count)))


def _bare(word: str) -> str:
    return _NO_LETTER.sub("", word).casefold()


def _agreeing(words: list[str], others: list[str]) -> int:
    """How many words both begin with."""
    pairs = zip(words, others, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(words), len(others)))


def _within(words: list[str], characters: int) -> int:
    """How many words lie wholly within so many characters."""
    ends = accumulate(map(len, words))
    return sum(end <= characters for end in ends)
