"""What is on its way to one client, and whether its finals are late. No socket and no session here.

Both are small on purpose: a client that does not read must cost a bounded amount of memory.
"""

import asyncio
from collections import deque

from streaming.protocol import Lag, Partial, ServerMessage

FULL = 1_000  # messages, about 300 bytes each: twenty minutes of speech for one who never looks


class Outbox:
    """Messages in order. Of partials and lags only the newest is kept: an older one is no news."""

    def __init__(self) -> None:
        self._queue: deque[ServerMessage] = deque()
        self._changed = asyncio.Event()
        self._ended = False

    @property
    def full(self) -> bool:
        """Whether its owner had better produce no more."""
        return len(self._queue) >= FULL

    def put(self, message: ServerMessage) -> None:
        """Queue `message`."""
        assert not self._ended, f"{message} after the last message"
        if isinstance(message, Partial | Lag):
            kind = type(message)
            self._queue = deque(queued for queued in self._queue if type(queued) is not kind)
        self._queue.append(message)
        self._changed.set()

    def end(self) -> None:
        """No message will follow."""
        self._ended = True
        self._changed.set()

    async def get(self) -> ServerMessage | None:
        """The next message; None after the last. For one reader."""
        while not self._queue and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        return self._queue.popleft() if self._queue else None


class LagMonitor:
    """When a client is told that its finals are late: after AFTER, at most every EVERY seconds,
    and once more when the service is back. Pure: all times are arguments, in seconds.
    """

    AFTER = 2.0
    EVERY = 1.0

    def __init__(self) -> None:
        self.sheds_partials = True
        self._since: dict[int, float] = {}  # utterance whose final is awaited: submission
        self._told = float("-inf")
        self._late = False

    @property
    def outstanding(self) -> int:
        """How many finals are awaited."""
        return len(self._since)

    @property
    def due(self) -> float | None:
        """When `look` should be called next, if ever."""
        if self._late:
            return self._told + self.EVERY
        if not self._since:
            return None
        return max(min(self._since.values()) + self.AFTER, self._told + self.EVERY)

    def submitted(self, utterance: int, now: float) -> None:
        """The final of `utterance` is awaited from `now`."""
        self._since[utterance] = now

    def finished(self, utterance: int) -> None:
        """The final of `utterance` is awaited no more."""
        self._since.pop(utterance, None)

    def look(self, now: float) -> Lag | None:
        """What there is to tell at `now`. Call it no sooner than `due`."""
        age = now - min(self._since.values(), default=now)
        was_late, self._late = self._late, age >= self.AFTER
        if not self._late and not was_late:
            return None
        self._told = now
        sheds = self._late and self.sheds_partials
        return Lag(seconds=round(age, 2), shedding="partials" if sheds else "nothing")
