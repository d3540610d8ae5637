"""The language in which an utterance is decoded: fixed, detected, or detected within a set.

Among all languages detection needs a second of speech, within a set much less; but a shorter utterance,
or noise, is no evidence for the next one. Knows no text.
"""

from collections.abc import Sequence

from streaming.protocol import SAMPLE_RATE

ENOUGH = SAMPLE_RATE  # samples of speech from which a language may be detected
SURE = 0.5  # probability from which a detected language is remembered
SETTLED = 0.7  # ... from which words in the first are shown: with more audio it may be another
LONG = 3 * SAMPLE_RATE  # samples of speech after which they are shown anyway

Asked = str | tuple[str, ...] | None


class Languages:
    """One session's languages. asked: a code, several to choose from, or None for any."""

    def __init__(self, asked: str | Sequence[str] | None) -> None:
        self._asked: Asked = asked if asked is None or isinstance(asked, str) else tuple(asked)
        self.known: str | None = None
        """The last language that was detected with certainty."""

    @property
    def fixed(self) -> str | None:
        """The language; None where it must be detected."""
        if isinstance(self._asked, tuple):
            return self._asked[0] if len(self._asked) == 1 else None
        return self._asked

    def among(self, asked: str | Sequence[str] | None) -> "Languages":
        """Those of the same session once it asks for `asked`: what was detected still counts, if it may."""
        languages = Languages(asked)
        if languages.fixed is None and (asked is None or self.known in asked):
            languages.known = self.known
        return languages

    def enough(self, voiced: int) -> bool:
        """Whether so many samples of speech are enough to detect their language."""
        return self.fixed is not None or voiced >= ENOUGH

    def of(self, voiced: int) -> tuple[Asked, str | None]:
        """The languages to choose from for an utterance of so many samples of speech, and the hint.

        Where any is allowed, one shorter than ENOUGH takes the language detected last. Before there is
        one its language is detected after all, and not remembered.
        """
        if self.enough(voiced) or isinstance(self._asked, tuple):
            return self._asked, self.known
        return self.known, None

    def settled(self, probability: float | None, voiced: int) -> bool:
        """Whether a language detected with this probability in so many samples of speech can be told."""
        if self.known is not None or probability is None:
            return True
        return probability >= SETTLED or voiced >= LONG

    def learn(self, language: str, probability: float | None, voiced: int) -> None:
        """Take the language detected in an utterance of so many samples that has words."""
        if probability is not None and probability >= SURE and voiced >= ENOUGH:
            self.known = language
