"""What a session has told its client and cannot take back, kept for a client that comes again. Pure.

Bounded: beyond MOST messages the oldest are forgotten, a final with all that belongs before it.
"""

from collections import deque

from streaming.protocol import Final, ServerMessage

MOST = 3_000  # messages, some 300 bytes each: a thousand finals with the speech around them


class History:
    """Messages in order; partials, lags and the like are no part of it."""

    def __init__(self) -> None:
        self._messages: deque[ServerMessage] = deque()
        self._forgotten = 0  # finals
        self._finals = 0

    @property
    def finals(self) -> int:
        """How many there were, forgotten ones included."""
        return self._finals

    def add(self, message: ServerMessage) -> None:
        """Keep `message`, the newest."""
        self._messages.append(message)
        self._finals += isinstance(message, Final)
        while len(self._messages) > MOST:
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
