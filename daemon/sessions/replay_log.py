"""What a session has told its client and cannot take back, kept for a client that comes again. Pure.

Bounded: beyond MOST messages the oldest are forgotten, a final with all that belongs before it.
"""

from collections import deque

from streaming.protocol import Configured, Final, Flushed, ServerMessage

MOST = 3_000  # messages: a thousand finals with the speech around them, some 300 bytes each without words


class ReplayLog:
    """Messages in order; partials, lags and the like are no part of it. kept: else finals are only counted."""

    def __init__(self, *, kept: bool = True) -> None:
        self._most = MOST if kept else 0
        self._messages: deque[ServerMessage] = deque()
        self._forgotten = 0  # finals
        self._finals = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def finals(self) -> int:
        """How many there were, forgotten ones included."""
        return self._finals

    def add(self, message: ServerMessage) -> None:
        """Keep `message`, the newest."""
        newest = self._messages[-1] if self._messages else None
        if isinstance(message, Flushed | Configured) and type(newest) is type(message):
            self._messages.pop()  # the newer one says as much
        self._messages.append(message)
        self._finals += isinstance(message, Final)
        while len(self._messages) > self._most:
            self._forgotten += isinstance(self._messages.popleft(), Final)

    def after(self, finals: int) -> list[ServerMessage]:
        """Everything that came after the first `finals` finals.

        Raises LookupError where there were fewer, or where the rest is forgotten in part.
        """
        if not self._forgotten <= finals <= self._finals:
            raise LookupError(finals)
        missing = list(self._messages)
        known = finals - self._forgotten
        while known:
            known -= isinstance(missing.pop(0), Final)
        return missing
