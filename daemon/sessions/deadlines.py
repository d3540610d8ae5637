"""The limits of time on one connection: until its start, between two frames, within an utterance, in all."""

import asyncio
from collections.abc import Callable
from functools import partial

from daemon.config import Config
from daemon.sessions.close_reasons import IDLE, OVERDUE, TIME_LIMIT, CloseReason
from daemon.sessions.live_session import LiveSession
from streaming.lifecycle import State

LATEST_START = 3_600.0  # seconds, where idle sessions are not ended
LOOKS = 3  # a loop that is late has frames to read: they come in between two looks


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
        """Those that may pass yet: "start", "audio", "idle", "limit"."""
        return set(self._timers)

    def frame(self) -> None:
        """A frame has come."""
        self._last_frame = self._loop.time()

    def started(self, session: LiveSession) -> None:
        """The connection has a session."""
        self._timers.pop("start").cancel()
        if self._config.idle_seconds:
            self._arm("idle", self._config.idle_seconds, partial(self._look, session))
        if self._config.no_audio_seconds:
            self._listen(session, session.stream.received, 0)
        if self._config.max_session_seconds:
            left = session.opened + self._config.max_session_seconds - self._loop.time()
            self._arm("limit", left, partial(self._limit, session))

    def cancel(self) -> None:
        """The connection has ended."""
        for timer in self._timers.values():
            timer.cancel()

    def _arm(self, purpose: str, seconds: float, act: Callable[[], None]) -> None:
        self._timers[purpose] = self._loop.call_later(seconds, act)

    def _listen(self, session: LiveSession, received: int, looks: int) -> None:
        """Look again in a while. `looks` in a row found no audio behind the `received` samples."""
        every = self._config.no_audio_seconds / LOOKS
        self._arm("audio", every, partial(self._listened, session, received, looks))

    def _listened(self, session: LiveSession, received: int, looks: int) -> None:
        stream = session.stream
        could = session.state is State.OPEN and not stream.unprocessed and not self._excused()
        looks = looks + 1 if could and stream.received == received else 0
        if looks == LOOKS:
            session.pause()
        if not session.state.is_finished:
            self._listen(session, stream.received, looks)

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
