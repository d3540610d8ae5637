"""What a session is asked to do, and from where in its audio on: `start`, and each `configure` after it.

Counts samples; knows no utterance and no recogniser.
"""

from collections import deque
from dataclasses import dataclass

import msgspec

from streaming.languages import Languages
from streaming.protocol import Configure, Start

MOST = 16  # kept: more than a client sends while one utterance is spoken; then the oldest are forgotten


@dataclass(frozen=True, slots=True)
class Configuration:
    """Options of the utterances whose speech begins at sample `since` or later.

    options: a `start` that would have asked for them. languages: what is known of theirs.
    """

    options: Start
    languages: Languages
    since: int = 0


class Configurations:
    """One session's, in the order of the audio."""

    def __init__(self, start: Start) -> None:
        self._kept = deque([Configuration(start, Languages(start.language))], maxlen=MOST)

    @property
    def newest(self) -> Configuration:
        """That of speech to come."""
        return self._kept[-1]

    def change(self, message: Configure, since: int) -> None:
        """Take `message`, which came behind `since` samples."""
        options = changed(self.newest.options, message)
        languages = self.newest.languages
        if options.language != self.newest.options.language:
            languages = languages.among(options.language)
        self._kept.append(Configuration(options, languages, since))

    def at(self, onset: int) -> Configuration:
        """That of an utterance whose speech begins at `onset` at the latest; those before it are forgotten."""
        while len(self._kept) > 1 and self._kept[1].since <= onset:
            self._kept.popleft()
        return self._kept[0]


def changed(start: Start, message: Configure) -> Start:
    """`start` with the fields that `message` has."""
    return msgspec.structs.replace(
        start,
        **{
            name: value
            for name, value in msgspec.structs.asdict(message).items()
            if value is not msgspec.UNSET
        },
    )
