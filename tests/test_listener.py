import asyncio
import socket
import ssl
import threading
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect, unix_connect
from websockets.exceptions import InvalidMessage, InvalidStatus

from daemon.config import Config
from daemon.server import Daemon
from streaming.protocol import Ready, Start
from tests.certificates import Certificates, certificates
from tests.fakes import PATIENCE, ScriptedEngine
from tests.wire import Client, get, serving, talk, until


async def test_who_asks_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a request holds a connection no longer than none."""
    monkeypatch.setattr("daemon.listener.REQUEST_TIMEOUT", 0.1)
    async with serving(ScriptedEngine()) as daemon:
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
        writer.write(b"GET / HTTP/1.1\r\nHost:")
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()
        assert await talk(daemon)


async def test_strangers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond their number connections end at once; those that are there stay."""
    monkeypatch.setattr("daemon.listener.STRANGERS", 3)
    async with serving(ScriptedEngine(), max_sessions=1) as daemon:
        idle = [await asyncio.open_connection("127.0.0.1", daemon.port) for _ in range(4)]
        await until(lambda: len(daemon._listener.sockets) == 4)
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()
        assert len(daemon._listener.sockets) == 4
        for _, other in idle:
            other.close()


async def test_a_socket_that_is_handed_over_waits_for_the_model() -> None:
    """A client that comes while the daemon restarts is served, not refused."""
    engine = ScriptedEngine()
    engine.hold_warm_up()
    with socket.create_server(("127.0.0.1", 0)) as inherited:
        daemon = Daemon(Config(), lambda: engine, inherited=[inherited])
        await daemon.start()
        running = asyncio.create_task(daemon.run())
        waiting = asyncio.create_task(talk(daemon))
        await until(lambda: bool(daemon._listener.sockets))
        assert (await get(daemon, "/livez"))[0] == 200
        assert (await get(daemon, "/readyz"))[0] == 503
        assert not waiting.done()
        engine.finish_warm_up()
        assert await asyncio.wait_for(waiting, PATIENCE)
        daemon.stop()
        await asyncio.wait_for(running, PATIENCE)


async def test_who_waits_for_a_model_that_cannot_be_had_is_told() -> None:
    failing = threading.Event()

    def load() -> ScriptedEngine:
        assert failing.wait(PATIENCE)
        raise LookupError("no such model")

    with socket.create_server(("127.0.0.1", 0)) as inherited:
        daemon = Daemon(Config(), load, inherited=[inherited])
        await daemon.start()
        running = asyncio.create_task(daemon.run())
        waiting = asyncio.create_task(talk(daemon))
        await until(lambda: bool(daemon._listener.sockets))
        failing.set()
        with pytest.raises(LookupError):
            await asyncio.wait_for(running, PATIENCE)
        with pytest.raises((InvalidMessage, InvalidStatus, ConnectionError)):
            await waiting


async def test_a_unix_socket_will_do(tmp_path: Path) -> None:
    path = str(tmp_path / "captiond.sock")
    with socket.socket(socket.AF_UNIX) as inherited:
        inherited.bind(path)
        inherited.listen()
        daemon = Daemon(Config(), ScriptedEngine, inherited=[inherited])
        await daemon.start()
        running = asyncio.create_task(daemon.run())
        async with unix_connect(path, "ws://localhost/") as opened:
            client = Client(opened)
            await client.say(Start())
            await client.hear_until(Ready)
        assert daemon.address == f"ws://{path}"
        daemon.stop()
        await asyncio.wait_for(running, PATIENCE)


def tls_daemon(made: Certificates) -> AbstractAsyncContextManager[Daemon]:
    settings: dict[str, Any] = {"tls_certificate": made.certificate, "tls_key": made.key}
    return serving(ScriptedEngine(), **settings)


async def test_tls_is_all_that_is_spoken_with_a_certificate(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    async with tls_daemon(made) as daemon:
        url = f"wss://127.0.0.1:{daemon.port}"
        assert daemon.address == url
        async with connect(url, ssl=made.client()) as opened:
            client = Client(opened)
            await client.say(Start())
            await client.hear_until(Ready)
        with pytest.raises((InvalidMessage, ConnectionError)):
            await connect(f"ws://127.0.0.1:{daemon.port}")
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(url, ssl=ssl.create_default_context())


async def test_a_new_certificate_serves_new_connections_and_old_ones_stay(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    async with tls_daemon(made) as daemon:
        url = f"wss://127.0.0.1:{daemon.port}"
        async with connect(url, ssl=made.client()) as opened:
            client = Client(opened)
            await client.say(Start())
            await client.hear_until(Ready)
            before = serial(opened.transport)
            made.renew()
            daemon.reload(daemon._config)
            async with connect(url, ssl=made.client()) as other:
                assert serial(other.transport) != before
            await client.say('{"type": "stop"}')
            await client.hear_all()


def serial(transport: asyncio.BaseTransport) -> str:
    return str(transport.get_extra_info("peercert")["serialNumber"])
