import asyncio
from typing import Any, cast

import pytest

from daemon.config import Config
from daemon.sessions.close_reasons import IDLE, OVERDUE, TIME_LIMIT, CloseReason
from daemon.sessions.deadlines import Deadlines
from daemon.sessions.live_session import LiveSession
from streaming.lifecycle import State
from tests.support.fakes import PATIENCE


class Session:
    """As far as deadlines look at it."""

    received = 0
    unprocessed = False

    def __init__(self, state: State) -> None:
        self.state = state
        self.opened = asyncio.get_running_loop().time()
        self.stream = self
        self.paused = asyncio.Event()

    def pause(self) -> None:
        self.paused.set()


class Ends:
    """The first reason for which a connection was ended."""

    def __init__(self) -> None:
        self._first = asyncio.get_running_loop().create_future()

    def __call__(self, close_reason: CloseReason) -> None:
        if not self._first.done():
            self._first.set_result(close_reason)

    async def first(self, seconds: float = PATIENCE) -> Any:
        return await asyncio.wait_for(asyncio.shield(self._first), seconds)


async def test_a_start_is_awaited_for_so_long() -> None:
    ends = Ends()
    deadlines = Deadlines(Config(start_timeout_seconds=0.01), ends, lambda: False)
    assert deadlines.pending == {"start"}
    assert await ends.first() is OVERDUE


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"idle_seconds": 0.01}, IDLE), ({"max_session_seconds": 0.01}, TIME_LIMIT)],
)
async def test_an_open_session_has_limits(settings: dict[str, Any], reason: CloseReason) -> None:
    ends = Ends()
    deadlines = Deadlines(Config(**{"idle_seconds": 0.0} | settings), ends, lambda: False)
    deadlines.started(cast(LiveSession, Session(State.OPEN)))
    assert "start" not in deadlines.pending
    assert await ends.first() is reason
    deadlines.cancel()


@pytest.mark.parametrize(
    ("idle", "limit", "state", "excused"),
    [
        (0.01, 0.0, State.DRAINING, False),
        (0.01, 0.0, State.OPEN, True),
        (0.0, 0.01, State.DRAINING, False),
    ],
)
async def test_a_client_that_cannot_send_is_not_late(
    idle: float, limit: float, state: State, excused: bool
) -> None:
    """Its audio is over, or nothing is read of it."""
    ends = Ends()
    config = Config(idle_seconds=idle, max_session_seconds=limit)
    deadlines = Deadlines(config, ends, lambda: excused)
    deadlines.started(cast(LiveSession, Session(state)))
    with pytest.raises(TimeoutError):
        await ends.first(0.1)
    deadlines.cancel()


async def test_a_client_that_sends_no_audio_pauses() -> None:
    """Its session goes on, and is told so again as often as it happens."""
    ends, session = Ends(), Session(State.OPEN)
    deadlines = Deadlines(Config(no_audio_seconds=0.03), ends, lambda: False)
    deadlines.started(cast(LiveSession, session))
    for _ in range(2):
        await asyncio.wait_for(session.paused.wait(), PATIENCE)
        session.paused.clear()
        session.received += 1
    assert "audio" in deadlines.pending
    deadlines.cancel()


@pytest.mark.parametrize(
    ("state", "excused", "unprocessed", "seconds"),
    [
        (State.DRAINING, False, False, 0.01),
        (State.OPEN, True, False, 0.01),
        (State.OPEN, False, True, 0.01),
        (State.OPEN, False, False, 0.0),
    ],
)
async def test_a_client_that_need_not_send_does_not_pause(
    state: State, *, excused: bool, unprocessed: bool, seconds: float
) -> None:
    session = Session(state)
    session.unprocessed = unprocessed
    deadlines = Deadlines(Config(no_audio_seconds=seconds), Ends(), lambda: excused)
    deadlines.started(cast(LiveSession, session))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.paused.wait(), 0.1)
    deadlines.cancel()
