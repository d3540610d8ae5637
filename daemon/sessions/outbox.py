"""What is on its way to one client. No socket and no session here.

Small on purpose: a client that does not read must cost a bounded amount of memory.
"""

import asyncio
from collections import deque

from streaming.dialects.dialect import Told
from streaming.protocol import Lag, Partial

FULL = 1_000  # messages, about 300 bytes each: twenty minutes of speech for one who never looks


class Outbox:
    """Messages in order. Only the newest partial and the newest lag are kept: an older one is no news.

    ended: no message will follow.
    """

    def __init__(self) -> None:
        self._queue: deque[Told] = deque()
        self._changed = asyncio.Event()
        self.ended = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether its owner had better produce no more."""
        return len(self._queue) >= FULL

    def put(self, message: Told) -> None:
        """Queue `message`."""
        assert not self.ended, f"{message} after the last message"
        if isinstance(message, Partial | Lag):
            kind = type(message)
            self._queue = deque(queued for queued in self._queue if type(queued) is not kind)
        self._queue.append(message)
        self._changed.set()

    def end(self) -> None:
        """No message will follow."""
        self.ended = True
        self._changed.set()

    async def get(self) -> Told | None:
        """The next message; None after the last. For one reader."""
        while not self._queue and not self.ended:
            self._changed.clear()
            await self._changed.wait()
        return self._queue.popleft() if self._queue else None
