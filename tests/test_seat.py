import asyncio
import struct
from typing import Any

import pytest

from daemon.config import Config
from daemon.farewell import NORMAL, SHUTTING_DOWN, Farewell
from daemon.metrics import Metrics
from daemon.scheduler import Scheduler
from daemon.seat import Seat, Service
from daemon.totals import Totals
from streaming.protocol import (
    Closed,
    Error,
    Final,
    Flushed,
    ProtocolError,
    Ready,
    ServerMessage,
    Speech,
    Start,
)
from streaming.segmenter import Settings
from tests.fakes import PATIENCE, ScriptedEngine
from tests.test_health import health
from tests.wire import frames, sentence, until


class Ear:
    """A client that remembers."""

    def __init__(self) -> None:
        self.heard: list[ServerMessage] = []
        self.farewell: Farewell | None = None

    def tell(self, message: ServerMessage) -> None:
        assert self.farewell is None, "told after the end"
        self.heard.append(message)

    def changed(self) -> None:
        pass

    def over(self, farewell: Farewell) -> None:
        self.farewell = farewell


class Room:
    """An engine behind a scheduler, and seats on demand."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.totals = Totals()
        self.scheduler = Scheduler(lambda: engine, asyncio.get_running_loop())
        self._warm = self.scheduler.start()
        metrics = Metrics(self.totals, health)
        self.service = Service(Config(), Settings(), self.scheduler, engine, metrics, None)

    def seat(self, **start: Any) -> Seat:
        return Seat("s1", "", Start(partials=False, **start), self.service)

    def stop(self) -> None:
        assert self.scheduler.stop(PATIENCE)


def feed(seat: Seat, data: bytes) -> None:
    seat.feed(data)
    while seat.unheard:
        seat.hear()


async def test_a_session_is_told_from_ready_to_closed() -> None:
    room = Room(ScriptedEngine())
    seat, ear = room.seat(), Ear()
    seat.attach(ear, 0)
    feed(seat, sentence())
    seat.stop()
    await until(lambda: seat.ended)
    assert isinstance(ear.heard[0], Ready)
    assert isinstance(ear.heard[-1], Closed)
    assert ear.farewell is NORMAL
    assert seat.heard_bytes == len(sentence())
    assert room.totals.audio_samples == len(sentence()) // 2
    assert seat.finals == sum(isinstance(message, Final) for message in ear.heard) > 0
    room.stop()


async def test_what_was_said_to_nobody_is_told_to_the_next() -> None:
    """As often as somebody comes; a client that has it all is told nothing twice but ready."""
    room = Room(ScriptedEngine())
    seat = room.seat(resumable=True)
    feed(seat, sentence())
    seat.stop()
    await until(lambda: seat.ended)
    first, second, third = Ear(), Ear(), Ear()
    seat.attach(first, 0)
    seat.attach(second, 1)
    seat.attach(third, seat.finals)
    assert [type(message) for message in first.heard[:3]] == [Ready, Speech, Speech]
    (known, *_) = (at for at, message in enumerate(first.heard) if isinstance(message, Final))
    assert second.heard[1:] == first.heard[known + 1 :]
    assert [type(message) for message in third.heard] == [Ready, Closed]
    assert first.farewell is second.farewell is NORMAL
    assert room.totals.resumed == 2
    room.stop()


async def test_nobody_can_know_more_than_was_said() -> None:
    room = Room(ScriptedEngine())
    with pytest.raises(LookupError):
        room.seat().attach(Ear(), 1)
    room.stop()


async def test_the_key_is_for_those_who_asked_and_cannot_be_guessed() -> None:
    room = Room(ScriptedEngine())
    keys = {room.seat(resumable=True).key for _ in range(9)}
    assert len(keys) == 9
    assert all(key is not None and len(key) >= 20 for key in keys)
    assert room.seat().key is None
    room.stop()


async def test_an_end_from_outside_delivers_what_was_spoken() -> None:
    engine = ScriptedEngine()
    engine.hold()
    room = Room(engine)
    seat, ear = room.seat(), Ear()
    seat.attach(ear, 0)
    feed(seat, sentence())
    seat.wind_down(SHUTTING_DOWN)
    assert seat.outstanding > 0
    engine.release()
    await until(lambda: seat.ended)
    assert isinstance(ear.heard[-2], Error)
    assert isinstance(ear.heard[-1], Closed)
    assert ear.farewell is SHUTTING_DOWN
    assert seat.outstanding == 0
    room.stop()


async def test_a_seat_that_is_discarded_says_nothing_more() -> None:
    engine = ScriptedEngine()
    engine.hold()
    room = Room(engine)
    seat, ear = room.seat(), Ear()
    seat.attach(ear, 0)
    feed(seat, sentence())
    seat.discard()
    said = list(ear.heard)
    engine.release()
    await until(lambda: room.scheduler.facts().running == 0)
    seat.feed(sentence())
    seat.hear()
    seat.flush()
    seat.stop()
    assert ear.heard == said
    room.stop()


async def test_what_the_service_cannot_do_takes_no_seat() -> None:
    room = Room(ScriptedEngine())
    with pytest.raises(ProtocolError, match="unknown language"):
        room.seat(language="xx")
    assert room.totals.started == 0
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
    assert room.seat(**start).bytes_per_second == rate
    room.stop()


async def test_a_flush_behind_the_stop_is_out_of_order_but_for_who_came_back() -> None:
    """It may not know that its stop was heard; flush is answered once, and stop needs no answer."""
    engine = ScriptedEngine()
    engine.hold()
    room = Room(engine)
    seat, ear, again = room.seat(resumable=True), Ear(), Ear()
    seat.attach(ear, 0)
    feed(seat, sentence())
    seat.flush()
    seat.stop()
    with pytest.raises(ProtocolError, match="nothing may follow stop"):
        seat.flush()
    seat.attach(again, 0)
    seat.flush()
    seat.stop()
    engine.release()
    await until(lambda: seat.ended)
    assert [type(message) for message in again.heard[-3:]] == [Final, Flushed, Closed]
    assert sum(isinstance(message, Flushed) for message in again.heard) == 1
    assert not any(isinstance(message, Error) for message in again.heard)
    room.stop()


async def test_what_seemed_to_be_sound_and_is_a_header_is_not_taken_back() -> None:
    """A counter never falls."""
    form = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)
    header = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0" + form + b"data\0\0\0\0"
    room = Room(ScriptedEngine())
    seat = room.seat()
    counts = []
    for frame in [*frames(header + sentence()[:320], 20), sentence()[320:]]:
        feed(seat, frame)
        counts.append(room.totals.audio_samples)
    assert counts[0] > 0
    assert counts == sorted(counts)
    assert counts[-1] == len(sentence()) // 2
    seat.discard()
    room.stop()
