import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Response
from websockets.typing import Subprotocol

from daemon.config import Config
from daemon.net.listener import PEER_TIMEOUT
from daemon.server import Daemon
from streaming.lifecycle import State
from streaming.protocol import SUBPROTOCOL, Closed, Error, Final, Ready, Start, Stop
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.wire import Client, calling, get, health, refusal, sentence, serving, talk, until


def text(response: Response) -> str:
    assert response.body is not None
    return response.body.decode()


@pytest.mark.parametrize("path", ["/", "/v1", "/?key=value"])
@pytest.mark.parametrize("offers", [None, [SUBPROTOCOL], ["other", SUBPROTOCOL]])
async def test_captions_are_served_at(path: str, offers: list[Subprotocol] | None) -> None:
    async with (
        serving(ScriptedEngine()) as daemon,
        calling(daemon, path, subprotocols=offers) as client,
    ):
        assert client.socket.subprotocol == (SUBPROTOCOL if offers else None)
        await client.say(Start())
        assert isinstance(await client.receive(), Ready)


async def test_an_unknown_subprotocol_is_refused_by_name() -> None:
    async with serving(ScriptedEngine()) as daemon:
        response = await refusal(daemon, subprotocols=[Subprotocol("captiond.v9")])
        assert response.status_code == 400
        assert "captiond.v9" in text(response)
        assert SUBPROTOCOL in text(response)


async def test_an_unknown_path_is_not_found() -> None:
    async with serving(ScriptedEngine()) as daemon:
        response = await refusal(daemon, "/v2")
        assert response.status_code == 404
        assert "/healthz" in text(response)
        assert (await refusal(daemon, "/overlay")).status_code == 404  # a file is no websocket
        assert (await get(daemon, "/favicon.ico"))[0] == 404


async def test_a_plain_request_is_told_what_this_is() -> None:
    async with serving(ScriptedEngine()) as daemon:
        status, head, body = await get(daemon, "/v1")
        assert status == 426
        assert "Upgrade: websocket" in head
        assert SUBPROTOCOL in body
        assert (await get(daemon, "/"))[0] == 200


async def test_a_wish_for_two_upgrades_is_no_websocket(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(ScriptedEngine()) as daemon:
        wish = "/v1 HTTP/1.1\r\nUpgrade: websocket\r\nUpgrade: websocket\r\nX-Rest:"
        status, head, _ = await get(daemon, wish)
        assert status == 426
        assert "Upgrade: websocket" in head
    assert caplog.records == []


async def test_no_free_session_is_said_at_once_and_a_leaver_frees_one() -> None:
    async with serving(ScriptedEngine(), max_sessions=1) as daemon:
        async with calling(daemon) as client:
            await client.say(Start())
            response = await refusal(daemon)
            assert response.status_code == 503
            assert response.headers["Retry-After"] == "5"
            assert text(response) == "all 1 sessions are taken\n"
            status, head, body = await get(daemon, "/v1")  # a browser hears nothing but this
            assert (status, body) == (503, text(response))
            assert "Retry-After: 5" in head
            await client.say(Stop())
            await client.hang_up()
        await until(lambda: not daemon.admission.admitted)
        assert await talk(daemon)


async def test_an_overloaded_daemon_takes_nobody_more() -> None:
    engine = ScriptedEngine()
    async with serving(engine, max_lag_seconds=1.0) as daemon, speaking(daemon, engine) as client:
        assert daemon.scheduler.stats().lag < 1.0
        async with calling(daemon):
            pass  # late, but not by too much
        await until(lambda: daemon.scheduler.stats().wait > 1.0)
        response = await refusal(daemon)
        assert response.status_code == 503
        assert response.headers["Retry-After"] == "5"
        assert text(response) == "captiond is overloaded: finals are 1 s late\n"
        assert (await health(daemon))[0] == 200
        engine.release()
        await client.finish()
        assert await talk(daemon)


async def test_a_handshake_that_fails_takes_no_session() -> None:
    """A websocket without a key is refused by the library, after we let it in."""
    async with serving(ScriptedEngine(), max_sessions=1) as daemon:
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n")
        assert b" 426 " in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()
        await until(lambda: not daemon.admission.admitted)
        assert await talk(daemon)


async def test_what_speaks_no_http_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Port scans are the weather, not an error."""
    async with serving(ScriptedEngine()) as daemon:
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
        writer.write(b"\x16\x03\x01\x00\xa5\x01 a TLS hello\r\n\r\n")
        await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
        assert await talk(daemon)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_nobody_is_let_in_before_the_engine_is_warm() -> None:
    engine = ScriptedEngine(warm=False)
    async with serving(engine, warm=False) as daemon:
        response = await refusal(daemon)
        assert response.status_code == 503
        status, head, said = await get(daemon, "/v1")
        assert (status, said) == (503, "captiond is still loading its model\n")
        assert said == text(response)
        assert "Retry-After: 5" in head
        assert (await get(daemon, "/"))[0] == 200, "the page is there meanwhile"
        status, body = await health(daemon)
        assert (status, body["status"], body["model"]) == (503, "warming_up", None)
        engine.finish_warm_up()
        await asyncio.wait_for(daemon.ready.wait(), PATIENCE)
        assert await talk(daemon)


async def test_health_counts() -> None:
    async with serving(ScriptedEngine()) as daemon:
        finals = await talk(daemon, Start(partials=False))
        await until(lambda: not daemon.admission.admitted)
        async with calling(daemon):
            status, body = await health(daemon)
    assert status == 200
    assert body == {
        "status": "ok",
        "ready": True,
        "model": "scripted",
        "drafter": None,
        "uptime_seconds": body["uptime_seconds"],
        "sessions": 1,
        "parked": 0,
        "finishing": 0,
        "waiting": 0,
        "running": 0,
        "lag_seconds": 0.0,
        "finals": len(finals),
        "partials": 0,
        "superseded": 0,
        "failed": 0,
        "started": 1,
        "resumed": 0,
        "refused": 0,
        "audio_seconds": 4.0,
        "alpha": 0.0,
        "tau": 1.0,
    }


async def test_health_fails_when_the_engine_makes_no_progress() -> None:
    """With work at hand, that is: an open port proves nothing."""
    engine = ScriptedEngine()
    async with serving(engine, stalled_after_seconds=0.0) as daemon, calling(daemon) as client:
        assert (await health(daemon))[0] == 200
        engine.hold()
        await client.say(Start(), sentence(), Stop())
        await until(engine.entered.is_set)
        await until(lambda: daemon.scheduler.stats().lag > 0.001)
        status, body = await health(daemon)
        assert (status, body["status"]) == (503, "stalled")
        assert body["running"] + body["waiting"] > 0
        assert body["lag_seconds"] > 0.0
        assert text(await refusal(daemon)) == "captiond is stalled\n"
        engine.release()
        await client.hear_all()
        assert (await health(daemon))[1]["status"] == "ok"


@asynccontextmanager
async def speaking(
    daemon: Daemon, engine: ScriptedEngine, start: Start | None = None
) -> AsyncIterator[Client]:
    """A client whose finals are pending."""
    engine.hold()
    async with calling(daemon) as client:
        await client.say(start or Start(), sentence())
        await until(lambda: daemon.scheduler.stats().lag > 0.0)
        yield client


async def test_stop_delivers_what_was_spoken() -> None:
    """Finals first, then the fatal error, then closed: a client that gives up at the error has all."""
    engine = ScriptedEngine()
    async with serving(engine) as daemon, speaking(daemon, engine) as client:
        port = daemon.port
        daemon.stop()
        assert daemon.status == "stopping"
        await until(lambda: not daemon.listener.is_serving)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await client.say(sentence())  # too late, and no fault of the client's
        engine.release()
        assert await client.hang_up() == (1001, "the daemon is shutting down")
        error, closed = client.heard[-2:]
        assert isinstance(error, Error)
        assert (error.code, error.fatal) == ("shutting_down", True)
        assert isinstance(closed, Closed)
        assert closed.finals == len(client.all(Final)) > 0
        assert closed.received == len(sentence()) // 2
        assert client.all(Error) == [error]


async def test_stop_leaves_a_session_that_is_ending_alone() -> None:
    engine = ScriptedEngine()
    async with serving(engine) as daemon, speaking(daemon, engine) as client:
        await client.say(Stop())
        (session,) = daemon.sessions
        await until(lambda: session.state is State.DRAINING)
        daemon.stop()
        await until(lambda: not daemon.listener.is_serving)
        engine.release()
        assert await client.hang_up() == (1000, "")
        assert not client.all(Error)
        assert client.all(Final)


async def test_stop_tells_a_client_that_has_not_started() -> None:
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await until(lambda: bool(daemon.connections))
        daemon.stop()
        assert (await client.hang_up())[0] == 1001
        (error,) = client.all(Error)
        assert error.code == "shutting_down"


async def test_stop_reaches_a_client_without_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    handed_over = asyncio.Event()
    original = ServerConnection.handshake

    async def handshake(connection: ServerConnection, *args: Any) -> None:
        await original(connection, *args)
        await handed_over.wait()

    monkeypatch.setattr(ServerConnection, "handshake", handshake)
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        daemon.stop()
        await until(lambda: not daemon.listener.is_serving)
        handed_over.set()
        assert (await client.hang_up())[0] == 1001


@pytest.mark.parametrize("resumable", [False, True])
async def test_a_second_stop_insists(resumable: bool, caplog: pytest.LogCaptureFixture) -> None:
    """It gives up also who might have come back."""
    engine = ScriptedEngine()
    async with (
        serving(engine, resume_seconds=900.0) as daemon,
        speaking(daemon, engine, Start(resumable=resumable)) as client,
    ):
        daemon.stop()
        daemon.stop()
        assert (await client.hang_up())[0] == 1006
        assert not client.all(Final)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_the_kernel_watches_for_dead_peers() -> None:
    """A peer that went without a word, or stopped reading, is given up within a minute."""
    async with serving(ScriptedEngine()) as daemon, calling(daemon):
        (connection,) = daemon.listener.sockets
        options = connection.transport.get_extra_info("socket")
        assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, every, probes, patience = (
            options.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{option}"))
            for option in ("KEEPIDLE", "KEEPINTVL", "KEEPCNT", "USER_TIMEOUT")
        )
        assert idle + every * probes <= PEER_TIMEOUT
        assert patience == PEER_TIMEOUT * 1000


async def test_an_engine_that_hangs_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("daemon.server.LAST_ROUND", 0.05)
    engine = ScriptedEngine()
    async with serving(engine, shutdown_seconds=0.0) as daemon, speaking(daemon, engine) as client:
        await until(engine.entered.is_set)
        daemon.stop()
        assert (await client.hang_up())[0] == 1006
        await until(lambda: "the engine hangs" in caplog.text)


async def test_a_silent_connection_does_not_delay_the_stop() -> None:
    """Browsers open some in advance."""
    async with serving(ScriptedEngine()) as daemon:
        _, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
        await until(lambda: bool(daemon.listener.sockets))
        daemon.stop()
        async with asyncio.timeout(5):  # half of what the library grants a handshake
            await until(lambda: not daemon.listener.sockets)
        writer.close()


async def test_stop_does_not_wait_for_a_model_that_is_loading() -> None:
    engine = ScriptedEngine(warm=False)
    daemon = Daemon(Config(port=0), lambda: engine)
    await daemon.start()
    daemon.stop()
    await asyncio.wait_for(daemon.run(), PATIENCE)
    assert daemon.abandoned
    engine.finish_warm_up()
    await until(lambda: all(thread.name != "engine" for thread in threading.enumerate()))


async def test_an_engine_that_does_not_load_ends_the_daemon() -> None:
    def load() -> ScriptedEngine:
        raise LookupError("no such model")

    daemon = Daemon(Config(port=0), load)
    await daemon.start()
    with pytest.raises(LookupError, match="no such model"):
        await daemon.run()
    assert not daemon.listener.is_serving


async def test_a_session_may_have_rules_of_its_own() -> None:
    """Those of the daemon are for sessions that name none; each kind stands for itself."""
    engine = ScriptedEngine(text=lambda _: "um twenty damn people")
    async with serving(engine, replacements=("um=",), numbers="digits") as daemon:
        (theirs, *_) = await talk(daemon)
        (own, *_) = await talk(daemon, Start(replacements={}, blocklist=["damn"], words=True))
    assert (theirs.text, theirs.raw) == ("20 damn people", "um twenty damn people")
    assert (own.text, own.raw) == ("um 20 d*** people", "um twenty damn people")
    assert [word.text for word in own.words or ()] == own.text.split()
