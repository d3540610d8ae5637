import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from daemon.config import Config
from daemon.monitoring.metrics import Metrics, total
from daemon.recognition.scheduler import Scheduler
from daemon.sessions.close_reasons import CloseReason
from daemon.sessions.live_session import LiveSession, Service
from streaming.dialects.dialect import Told
from streaming.protocol import Flush, Start
from streaming.settings import Settings
from tests.support.fakes import PATIENCE, ScriptedEngine, health
from tests.support.wire import frames, sentence, until


class RecordingClient:
    """A client that remembers."""

    gone = False

    def __init__(self) -> None:
        self.heard: list[Told] = []

    def tell(self, message: Told) -> None:
        self.heard.append(message)

    def changed(self) -> None:
        pass

    def over(self, close_reason: CloseReason) -> None:
        raise AssertionError("it is over without a word")

    async def give_way(self) -> None:
        raise AssertionError("nobody takes its place")


class Harness:
    """An engine behind a scheduler, and sessions on demand."""

    def __init__(self) -> None:
        self.closed: list[LiveSession] = []
        self.engine = ScriptedEngine()
        self.scheduler = Scheduler(lambda: self.engine, asyncio.get_running_loop())
        self._warm = self.scheduler.start()
        self.metrics = Metrics(health)
        self._service = Service(
            Config(), Settings(), self.scheduler, self.engine, self.metrics, None
        )

    def live_session(self, **start: Any) -> LiveSession:
        asked = Start(partials=False, **start)
        return LiveSession("s1", "", asked, self._service, self.closed.append)


@pytest_asyncio.fixture
async def harness() -> AsyncIterator[Harness]:
    opened = Harness()
    yield opened
    assert opened.scheduler.stop(PATIENCE)


def feed(live_session: LiveSession, data: bytes) -> None:
    live_session.feed(data)
    while live_session.stream.unprocessed:
        live_session.process()


async def test_the_key_is_for_those_who_asked_and_cannot_be_guessed(harness: Harness) -> None:
    keys = {harness.live_session(resumable=True).key for _ in range(9)}
    assert len(keys) == 9
    assert all(key is not None and len(key) >= 20 for key in keys)
    assert harness.live_session().key is None


async def test_a_session_that_has_expired_says_nothing_more(harness: Harness) -> None:
    harness.engine.hold()
    live_session, client = harness.live_session(), RecordingClient()
    live_session.attach(client, 0)
    feed(live_session, sentence())
    live_session.expire("over")
    assert harness.closed == [live_session]
    assert live_session.lag.outstanding > 0, "which are given up"
    said = list(client.heard)
    harness.engine.release()
    await until(lambda: harness.scheduler.stats().running == 0)
    live_session.feed(sentence())
    live_session.process()
    live_session.command(Flush())
    live_session.stop()
    assert client.heard == said


@pytest.mark.parametrize(
    ("start", "rate"),
    [
        ({}, 32_000),
        ({"encoding": "f32le", "channels": 2, "rate": 8_000}, 64_000),
        ({"encoding": "mulaw"}, 16_000),
    ],
)
async def test_the_rate_is_the_clients(start: dict[str, Any], rate: int, harness: Harness) -> None:
    assert harness.live_session(**start).bytes_per_second == rate


async def test_what_seemed_to_be_sound_and_is_a_header_is_not_taken_back(harness: Harness) -> None:
    """A counter never falls."""
    form = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)
    header = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0" + form + b"data\0\0\0\0"
    live_session = harness.live_session()
    counts = []
    for frame in [*frames(header + sentence()[:320], 20), sentence()[320:]]:
        feed(live_session, frame)
        counts.append(round(total(harness.metrics.audio) * 16_000))
    assert counts[0] > 0
    assert counts == sorted(counts)
    assert counts[-1] == len(sentence()) // 2
    live_session.expire("over")
