import asyncio
import struct
from typing import Any

import pytest

from daemon.config import Config
from daemon.monitoring.metrics import Metrics, total
from daemon.recognition.scheduler import Scheduler
from daemon.sessions.close_reasons import NORMAL, SHUTTING_DOWN, CloseReason
from daemon.sessions.live_session import LiveSession, Service
from streaming.dialects.dialect import Told
from streaming.protocol import (
    Closed,
    Error,
    Final,
    Flushed,
    ProtocolError,
    Ready,
    Speech,
    Start,
)
from streaming.settings import Settings
from tests.support.fakes import PATIENCE, ScriptedEngine, health
from tests.support.wire import frames, sentence, until


class Ear:
    """A client that remembers."""

    gone = False

    def __init__(self) -> None:
        self.heard: list[Told] = []
        self.close_reason: CloseReason | None = None

    def tell(self, message: Told) -> None:
        assert self.close_reason is None, "told after the end"
        self.heard.append(message)

    def changed(self) -> None:
        pass

    def over(self, close_reason: CloseReason) -> None:
        self.close_reason = close_reason

    async def give_way(self) -> None:
        raise AssertionError("nobody takes its place")


class Room:
    """An engine behind a scheduler, and seats on demand."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.closed: list[LiveSession] = []
        self.scheduler = Scheduler(lambda: engine, asyncio.get_running_loop())
        self._warm = self.scheduler.start()
        self.metrics = Metrics(health)
        self.service = Service(Config(), Settings(), self.scheduler, engine, self.metrics, None)

    def live_session(self, **start: Any) -> LiveSession:
        return LiveSession(
            "s1", "", Start(partials=False, **start), self.service, self.closed.append
        )

    def stop(self) -> None:
        assert self.scheduler.stop(PATIENCE)


def feed(live_session: LiveSession, data: bytes) -> None:
    live_session.feed(data)
    while live_session.stream.unprocessed:
        live_session.process()


async def test_a_session_is_told_from_ready_to_closed() -> None:
    room = Room(ScriptedEngine())
    live_session, ear = room.live_session(), Ear()
    live_session.attach(ear, 0)
    feed(live_session, sentence())
    live_session.stop()
    await until(lambda: live_session.state.is_finished)
    assert isinstance(ear.heard[0], Ready)
    assert isinstance(ear.heard[-1], Closed)
    assert ear.close_reason is NORMAL
    assert live_session.acknowledged_bytes == len(sentence())
    assert total(room.metrics.audio) == pytest.approx(len(sentence()) / 32_000)
    told = sum(isinstance(message, Final) for message in ear.heard)
    assert live_session.replay_log.finals == told > 0
    room.stop()


async def test_what_was_said_to_nobody_is_told_to_the_next() -> None:
    """As often as somebody comes; a client that has it all is told nothing twice but ready."""
    room = Room(ScriptedEngine())
    live_session = room.live_session(resumable=True)
    live_session.attach(Ear(), 0)
    feed(live_session, sentence())
    live_session.stop()
    live_session.detach()
    await until(lambda: live_session.state.is_finished)
    first, second, third = Ear(), Ear(), Ear()
    for ear, finals in ((first, 0), (second, 1), (third, live_session.replay_log.finals)):
        live_session.attach(ear, finals)
        live_session.detach()
    assert [type(message) for message in first.heard[:3]] == [Ready, Speech, Speech]
    (known, *_) = (at for at, message in enumerate(first.heard) if isinstance(message, Final))
    assert second.heard[1:] == first.heard[known + 1 :]
    assert [type(message) for message in third.heard] == [Ready, Closed]
    assert first.close_reason is second.close_reason is NORMAL
    assert total(room.metrics.resumed) == 3
    room.stop()


async def test_nobody_can_know_more_than_was_said() -> None:
    room = Room(ScriptedEngine())
    with pytest.raises(LookupError):
        room.live_session().attach(Ear(), 1)
    room.stop()


async def test_the_key_is_for_those_who_asked_and_cannot_be_guessed() -> None:
    room = Room(ScriptedEngine())
    keys = {room.live_session(resumable=True).key for _ in range(9)}
    assert len(keys) == 9
    assert all(key is not None and len(key) >= 20 for key in keys)
    assert room.live_session().key is None
    room.stop()


async def test_an_end_from_outside_delivers_what_was_spoken() -> None:
    engine = ScriptedEngine()
    engine.hold()
    room = Room(engine)
    live_session, ear = room.live_session(), Ear()
    live_session.attach(ear, 0)
    feed(live_session, sentence())
    live_session.shut_down(SHUTTING_DOWN)
    assert live_session.lag.outstanding > 0
    engine.release()
    await until(lambda: live_session.state.is_finished)
    assert isinstance(ear.heard[-2], Error)
    assert isinstance(ear.heard[-1], Closed)
    assert ear.close_reason is SHUTTING_DOWN
    assert live_session.lag.outstanding == 0
    room.stop()


async def test_a_session_that_has_expired_says_nothing_more() -> None:
    engine = ScriptedEngine()
    engine.hold()
    room = Room(engine)
    live_session, ear = room.live_session(), Ear()
    live_session.attach(ear, 0)
    feed(live_session, sentence())
    live_session.expire("over")
    assert room.closed == [live_session]
    assert live_session.lag.outstanding > 0, "which are given up"
    said = list(ear.heard)
    engine.release()
    await until(lambda: room.scheduler.facts().running == 0)
    live_session.feed(sentence())
    live_session.process()
    live_session.flush()
    live_session.stop()
    assert ear.heard == said
    room.stop()


async def test_what_the_service_cannot_do_takes_no_seat() -> None:
    room = Room(ScriptedEngine())
    with pytest.raises(ProtocolError, match="unknown language"):
        room.live_session(language="xx")
    assert total(room.metrics.started) == 0
    room.stop()


@pytest.mark.parametrize(
    ("start", "rate"),
    [
        ({}, 32_000),
        ({"encoding": "f32le", "channels": 2, "rate": 8_000}, 64_000),
        ({"encoding": "mulaw"}, 16_000),
    ],
)
async def test_the_rate_of_audio_is_the_clients(start: dict[str, Any], rate: int) -> None:
    room = Room(ScriptedEngine())
    assert room.live_session(**start).bytes_per_second == rate
    room.stop()


async def test_a_flush_behind_the_stop_is_out_of_order_but_for_who_came_back() -> None:
    """It may not know that its stop was heard; flush is answered once, and stop needs no answer."""
    engine = ScriptedEngine()
    engine.hold()
    room = Room(engine)
    live_session, ear, again = room.live_session(resumable=True), Ear(), Ear()
    live_session.attach(ear, 0)
    feed(live_session, sentence())
    live_session.flush()
    live_session.stop()
    with pytest.raises(ProtocolError, match="nothing may follow stop"):
        live_session.flush()
    live_session.detach()
    live_session.attach(again, 0)
    live_session.flush()
    live_session.stop()
    engine.release()
    await until(lambda: live_session.state.is_finished)
    assert [type(message) for message in again.heard[-3:]] == [Final, Flushed, Closed]
    assert sum(isinstance(message, Flushed) for message in again.heard) == 1
    assert not any(isinstance(message, Error) for message in again.heard)
    room.stop()


async def test_what_seemed_to_be_sound_and_is_a_header_is_not_taken_back() -> None:
    """A counter never falls."""
    form = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)
    header = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0" + form + b"data\0\0\0\0"
    room = Room(ScriptedEngine())
    live_session = room.live_session()
    counts = []
    for frame in [*frames(header + sentence()[:320], 20), sentence()[320:]]:
        feed(live_session, frame)
        counts.append(round(total(room.metrics.audio) * 16_000))
    assert counts[0] > 0
    assert counts == sorted(counts)
    assert counts[-1] == len(sentence()) // 2
    live_session.expire("over")
    room.stop()
