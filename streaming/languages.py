"""In which language an utterance is decoded: fixed, detected, or detected within a set.

Detection needs a second of speech; less, and noise, are no evidence. Knows no text.
"""

from collections.abc import Sequence

from streaming.protocol import SAMPLE_RATE

ENOUGH = SAMPLE_RATE  # samples of speech from which a language may be detected
SURE = 0.5  # probability from which what was detected is remembered

Asked = str | tuple[str, ...] | None


class Languages:
    """One session's. asked: a code, several to choose from, or None for any."""

    def __init__(self, asked: str | Sequence[str] | None) -> None:
        self._asked: Asked = asked if asked is None or isinstance(asked, str) else tuple(asked)
        self.known: str | None = None
        """What was spoken last, as far as that is certain."""

    @property
    def fixed(self) -> str | None:
        """The language, where nothing is to be detected."""
        if isinstance(self._asked, tuple):
            return self._asked[0] if len(self._asked) == 1 else None
        return self._asked

    def enough(self, voiced: int) -> bool:
        """Whether so many samples of speech may be decoded in a language that they tell themselves."""
        return self.fixed is not None or voiced >= ENOUGH

    def of(self, voiced: int) -> tuple[Asked, str | None]:
        """What to ask for an utterance of so many samples of speech, and what to expect there.

        A shorter one is in the language spoken before; at first in the one that was named first.
        With nothing to go by it is detected after all, and not remembered.
        """
        if self.enough(voiced):
            return self._asked, self.known
        if self.known is None and isinstance(self._asked, tuple):
            return self._asked[0], None
        return self.known, None

    def learn(self, language: str, probability: float | None, voiced: int) -> None:
        """Take what was detected in an utterance of so many samples, where words were said."""
        if probability is not None and probability >= SURE and voiced >= ENOUGH:
            self.known = language
