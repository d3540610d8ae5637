"""What a session has said for good: for its client, should it come again, and on disk."""

from msgspec.structs import replace

from daemon.sessions.replay_log import ReplayLog
from daemon.sessions.transcripts import Transcript
from streaming.protocol import Closed, Final, ServerMessage


class Record:
    """One session's.

    words: whether its client is told the times of words; a transcript has them regardless.
    replay_log: what the client may have missed. transcript: on disk, if there is one.
    """

    def __init__(
        self, replay_log: ReplayLog, transcript: Transcript | None, *, words: bool
    ) -> None:
        self.replay_log = replay_log
        self.transcript = transcript
        self._words = words
        self._closed: Closed | None = None

    def add(self, message: ServerMessage) -> ServerMessage:
        """Keep `message`, the newest; returns it as the client is told it."""
        if isinstance(message, Closed):
            self._closed = message
        if isinstance(message, Final):
            if self.transcript is not None:
                self.transcript.final(message)
            if not self._words:
                message = replace(message, words=None)
        self.replay_log.add(message)
        return message

    def close(self) -> None:
        """Nothing more will be said."""
        if self.transcript is not None:
            self.transcript.close(self._closed)
