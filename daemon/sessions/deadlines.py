"""The limits of time on one connection: until its start, between two frames, and in all."""

import asyncio
from collections.abc import Callable
from functools import partial

from daemon.config import Config
from daemon.sessions.close_reasons import IDLE, OVERDUE, TIME_LIMIT, CloseReason
from daemon.sessions.live_session import LiveSession
from streaming.lifecycle import State

LATEST_START = 3_600.0  # seconds, where idle sessions are not ended


class Deadlines:
    """One connection's. end: called when one has passed. excused: whether no frame can be expected now.

    starts_late: whether the session may start as late as an idle one ends.
    """

    def __init__(
        self,
        config: Config,
        end: Callable[[CloseReason], None],
        excused: Callable[[], bool],
        *,
        starts_late: bool = False,
    ) -> None:
        self._config = config
        self._end = end
        self._excused = excused
        self._loop = asyncio.get_running_loop()
        self._last_frame = self._loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        patience = config.start_timeout_seconds
        if starts_late:
            patience = max(patience, config.idle_seconds or LATEST_START)
        self._arm("start", patience, partial(end, OVERDUE))

    @property
    def pending(self) -> set[str]:
        """Those that may pass yet: "start", "idle", "limit"."""
        return set(self._timers)

    def frame(self) -> None:
        """A frame has come."""
        self._last_frame = self._loop.time()

    def started(self, session: LiveSession) -> None:
        """The connection has a session."""
        self._timers.pop("start").cancel()
        if self._config.idle_seconds:
            self._arm("idle", self._config.idle_seconds, partial(self._look, session))
        if self._config.max_session_seconds:
            left = session.opened + self._config.max_session_seconds - self._loop.time()
            self._arm("limit", left, partial(self._limit, session))

    def cancel(self) -> None:
        """The connection has ended."""
        for timer in self._timers.values():
            timer.cancel()

    def _arm(self, purpose: str, seconds: float, act: Callable[[], None]) -> None:
        self._timers[purpose] = self._loop.call_later(seconds, act)

    def _limit(self, session: LiveSession) -> None:
        """A session that takes no more audio ends by itself, however long its finals take."""
        if session.state is State.OPEN:
            self._end(TIME_LIMIT)

    def _look(self, session: LiveSession) -> None:
        """A client is idle only if it could send and has something left to say."""
        if session.state is not State.OPEN or self._excused():
            self.frame()
        left = self._last_frame + self._config.idle_seconds - self._loop.time()
        if left > 0:
            self._arm("idle", left, partial(self._look, session))
        else:
            self._end(IDLE)
