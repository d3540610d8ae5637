"""Whether a session's finals are late, and when its client is told so."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from streaming.protocol import Lag


class LagMonitor:
    """When a client is told that its finals are late: after AFTER, at most every EVERY seconds,
    and once more when the service is back. Pure: all times are arguments, in seconds.
    """

    AFTER = 2.0
    EVERY = 1.0

    def __init__(self, *, sheds_partials: bool = True) -> None:
        self._sheds_partials = sheds_partials
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
        sheds = self._late and self._sheds_partials
        return Lag(seconds=round(age, 2), shedding="partials" if sheds else "nothing")


class Recipient(Protocol):
    """A client that may be told."""

    def tell(self, message: Lag) -> None:
        """The next message."""


class LagReporter:
    """Tells the client that `recipient` returns, if any, what `LagMonitor` has to say, when it is due."""

    def __init__(self, recipient: Callable[[], Recipient | None], *, sheds_partials: bool) -> None:
        self._recipient = recipient
        self._loop = asyncio.get_running_loop()
        self._lag_monitor = LagMonitor(sheds_partials=sheds_partials)
        self._timer: asyncio.TimerHandle | None = None  # of the next look

    @property
    def outstanding(self) -> int:
        """How many finals are awaited."""
        return self._lag_monitor.outstanding

    def submitted(self, utterance: int) -> None:
        """The final of `utterance` is awaited from now on."""
        self._lag_monitor.submitted(utterance, self._loop.time())
        self.watch()

    def finished(self, utterance: int) -> None:
        """The final of `utterance` is awaited no more."""
        self._lag_monitor.finished(utterance)

    def watch(self) -> None:
        """Look when it is time to: also for a client that has come since."""
        due = self._lag_monitor.due
        if due is not None and self._timer is None and self._recipient() is not None:
            self._timer = self._loop.call_at(due, self._look)

    def cancel(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        lag = self._lag_monitor.look(self._loop.time())
        if (recipient := self._recipient()) is not None:
            if lag is not None:
                recipient.tell(lag)
            self.watch()
