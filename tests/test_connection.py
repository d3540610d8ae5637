import asyncio
import logging
import socket
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed

from daemon.sessions.outbox import FULL
from streaming.protocol import Closed, Error, Final, Flush, Partial, Ready, Speech, Start, Stop
from streaming.session import Output, Session
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.wire import (
    FRAME,
    calling,
    frames,
    half_a_sentence,
    health,
    sentence,
    serving,
    speech,
    talk,
    until,
)


async def test_a_session_from_start_to_closed() -> None:
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say(Start(partials=False))
        ready = await client.receive()
        assert isinstance(ready, Ready)
        assert (ready.model, ready.drafter) == ("scripted", None)
        assert ready.limits.frame_bytes == 2**20
        assert ready.limits.buffered_seconds == 60.0
        assert ready.limits.utterance_seconds == 30.0
        await client.say(*frames(speech(), FRAME), Stop())
        closed = (await client.hear_all())[-1]
        assert isinstance(closed, Closed)
        assert await client.hang_up() == (1000, "")
    finals = client.all(Final)
    assert [final.utterance for final in finals] == list(range(closed.finals))
    assert closed.finals > 5
    assert closed.received == len(speech()) // 2
    for final in finals:
        assert float(final.text) == pytest.approx((final.end - final.start) * 16_000)
        assert final.decode.ms >= 0
        assert [s.event for s in client.all(Speech) if s.utterance == final.utterance] == [
            "start",
            "end",
        ]


async def test_requests_carry_what_start_asks_for() -> None:
    engine = ScriptedEngine(text=lambda _: "two words")
    async with serving(engine) as daemon:
        start = Start(
            language=["de", "en"],
            task="translate",
            seed=7,
            prompt="as before",
            hot_words=["captiond", "Whisper"],
            words=True,
        )
        async with calling(daemon) as client:
            await client.say(start, *frames(speech(), FRAME)[:110])
            await client.receive_until(Partial)
            await client.finish()
    for request in engine.admitted:
        assert request.language == ("de", "en")
        assert (request.task, request.temperature, request.seed) == ("translate", 0.0, 7)
        assert request.prompt == "captiond, Whisper as before"
        assert request.stop_on_repetition
        assert request.words is bool(request.fallback_temperatures) is not request.fitted_window
    assert {request.fitted_window for request in engine.admitted} == {True, False}


async def test_what_was_decoded_early_is_the_final() -> None:
    engine = ScriptedEngine()
    async with serving(engine) as daemon, calling(daemon) as client:
        await client.say(Start(partials=False))
        for frame in frames(sentence(), FRAME):
            await client.say(frame)
        await client.finish()
    lengths = [len(request.audio) for request in engine.admitted]
    assert len(lengths) == len(set(lengths)), "the same span was decoded twice"
    assert daemon.metrics.counts()["finals"] == len(client.all(Final)) > 0


async def test_an_utterances_last_hypothesis_is_the_draft_of_its_next() -> None:
    engine = ScriptedEngine(text=lambda _: "two words")
    async with serving(engine) as daemon, calling(daemon) as client:
        await client.say(Start(language="en"), half_a_sentence())
        await client.receive_until(Partial)
        await client.say(Flush())
        await client.receive_until(Final)
        await client.finish(half_a_sentence(), Flush())
    finals = [request for request in engine.admitted if not request.fitted_window]
    drafts = [request.draft_tokens for request in engine.admitted]
    assert finals[0].draft_tokens == (1, 2, 3), "what the script says of everything"
    begins = [0, engine.admitted.index(finals[0]) + 1]
    assert [drafts[number] for number in begins] == [(), ()]


async def test_a_large_frame_gives_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    heard_at: list[int] = []
    original = Session.process

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def hear(session: Session) -> list[Output]:
        heard_at.append(turns)
        return original(session)

    monkeypatch.setattr(Session, "process", hear)
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        other = asyncio.create_task(take_turns())
        await client.finish(Start(), speech()[: 20 * 32_000])
        other.cancel()
    assert len(heard_at) == len(set(heard_at)) == 40


async def test_a_client_that_vanishes_frees_everything(caplog: pytest.LogCaptureFixture) -> None:
    engine = ScriptedEngine(held=True)
    async with serving(engine, max_sessions=2) as daemon:
        with caplog.at_level(logging.INFO, logger="daemon"):
            async with calling(daemon) as client:
                await client.say(Start(), speech()[: 20 * 32_000])
                await until(engine.entered.is_set)
                client.socket.transport.abort()
            await until(lambda: not daemon.connections)
        assert len(caplog.records) == 1
        assert "its client vanished" in caplog.text
        stats = daemon.scheduler.stats()
        assert (stats.waiting, stats.running) == (0, 0)
        engine.release()
        assert await talk(daemon)
        assert engine.cancelled


async def test_a_client_that_closes_its_half_of_the_connection_is_gone() -> None:
    async with serving(ScriptedEngine()) as daemon:
        async with calling(daemon) as client:
            await client.say(Start(), sentence())
            await client.receive_until(Ready)
            client.socket.transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
            await until(lambda: not daemon.connections)
        assert await talk(daemon)


async def test_a_client_that_never_reads_is_paused_and_costs_nobody_anything() -> None:
    engine = ScriptedEngine(slots=1, text=lambda _: "word " * 20_000)
    async with serving(engine) as daemon, calling(daemon, max_queue=1) as deaf:
        await deaf.say(Start(partials=False))
        await until(lambda: bool(daemon.connections))
        (connection,) = daemon.connections

        async def shout() -> None:
            while True:
                await deaf.say(sentence()[: 80 * FRAME], Flush())

        shouting = asyncio.create_task(shout())
        await until(lambda: connection.paused)
        assert connection.queued <= FULL + 10
        assert await talk(daemon)
        shouting.cancel()
        while connection.paused:  # it reads again, and so does the daemon
            await deaf.receive()
        deaf.socket.transport.abort()


async def test_a_client_that_sends_too_fast_is_paused_and_nothing_is_lost() -> None:
    engine = ScriptedEngine(held=True)
    async with serving(engine, max_buffered_seconds=2.0) as daemon, calling(daemon) as client:
        await client.say(Start(partials=False))
        await client.receive_until(Ready)
        (connection,) = daemon.connections
        times = 4

        async def pour() -> None:
            for _ in range(times):
                await client.say(*frames(speech()))
            await client.say(Stop())

        pouring = asyncio.create_task(pour())
        await until(lambda: connection.paused)
        assert connection.handler.session is not None
        session = connection.handler.session.stream
        pending = session.pending_samples
        for _ in range(20):  # turns of the loop in which more could be read
            await health(daemon)
        assert session.pending_samples == pending
        engine.release()
        await client.hear_all()
        await pouring
        (closed,) = client.all(Closed)
        assert closed.received == times * len(speech()) // 2
        assert closed.finals == len(client.all(Final))


# Where the kernel holds the rest nothing is read, and only what is written meets a closed door.
@pytest.mark.parametrize(("seconds", "ping"), [(0, PATIENCE), (3, 0.1), (20, 0.1)])
async def test_a_paused_client_that_vanishes_is_noticed_behind_what_it_sent(
    seconds: int, ping: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Audio that waits to be read, here or in the kernel, is read and thrown away."""
    monkeypatch.setattr("daemon.net.listener.PING_INTERVAL", ping)
    engine = ScriptedEngine(held=True)
    async with serving(engine, max_buffered_seconds=1.0) as daemon, calling(daemon) as client:
        await client.say(Start(partials=False), *frames(sentence()))
        await client.receive_until(Ready)
        (connection,) = daemon.connections
        await until(lambda: connection.paused)
        await client.say(*frames(speech()[: seconds * 32_000]))
        client.socket.transport.abort()
        await until(lambda: not daemon.connections)
        assert daemon.scheduler.stats().running == 0


async def test_what_was_sent_before_a_shutdown_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the daemon stops between two slices of a long frame."""
    original = Session.feed

    def feed(session: Session, data: bytes) -> list[Output]:
        daemon.stop()
        return original(session, data)

    monkeypatch.setattr(Session, "feed", feed)
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say(Start(), speech())
        assert (await client.hang_up())[0] == 1001
        (closed,) = client.all(Closed)
        assert closed.received == len(speech()) // 2
        assert closed.finals == len(client.all(Final)) > 5


async def test_a_fault_of_ours_is_logged_in_full_and_told_in_brief(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def feed(_session: Session, _data: bytes) -> list[Output]:
        raise ZeroDivisionError("a secret")

    async with serving(ScriptedEngine()) as daemon:
        async with calling(daemon) as client:
            with monkeypatch.context() as patch:
                patch.setattr(Session, "feed", feed)
                await client.say(Start(), sentence())
                assert await client.hang_up() == (1011, "internal error")
            last = client.heard[-1]
            assert isinstance(last, Error)
            assert (last.code, last.fatal) == ("internal", True)
            assert "secret" not in last.message
        assert "ZeroDivisionError: a secret" in caplog.text
        assert await talk(daemon)


async def test_a_fault_while_reading_pauses_closes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's close frame lies behind audio that must be read and thrown away."""

    def accept(_session: Session, *_args: object) -> list[Output]:
        raise ZeroDivisionError

    engine = ScriptedEngine(held=True)
    monkeypatch.setattr(Session, "accept", accept)
    async with serving(engine, max_buffered_seconds=1.0) as daemon, calling(daemon) as client:
        await client.say(Start(partials=False))
        await client.receive_until(Ready)
        (connection,) = daemon.connections

        async def pour() -> None:
            with suppress(ConnectionClosed):
                while True:
                    await client.say(*frames(speech()))

        pouring = asyncio.create_task(pour())
        await until(lambda: connection.paused)
        engine.release()
        async with asyncio.timeout(5):  # half of what the library grants a closing handshake
            assert (await client.hang_up())[0] == 1011
        await pouring


async def test_sessions_leave_no_trace() -> None:
    """Many come, talk and go in every way; `serving` then looks for what they left."""
    async with serving(ScriptedEngine()) as daemon:
        for turn in range(30):
            async with calling(daemon) as client:
                await client.say(Start(), sentence()[: 40 * FRAME])
                if turn % 3 == 0:
                    client.socket.transport.abort()
                elif turn % 3 == 1:
                    await client.finish()
        await until(lambda: not daemon.admission.admitted)
