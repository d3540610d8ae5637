import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import InvalidMessage, InvalidStatus
from websockets.http11 import Request, Response

from daemon.config import Config
from daemon.net.exchange import Exchange
from daemon.net.http import Reply, wants_websocket
from daemon.net.listener import Listener
from daemon.server import Daemon
from streaming.protocol import Ready, Start
from tests.support.certificates import Certificates, certificates
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.wire import Client, get, serving, talk, until


async def test_who_asks_nothing_is_let_go() -> None:
    """Half a request holds a connection no longer than none."""
    async with serving(ScriptedEngine()) as daemon:
        with pytest.MonkeyPatch.context() as hasty:
            hasty.setattr("daemon.net.listener.REQUEST_TIMEOUT", 0.1)
            reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
            writer.write(b"GET / HTTP/1.1\r\nHost:")
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
            writer.close()
        assert await talk(daemon)


async def gone(reader: asyncio.StreamReader) -> None:
    """Wait until the daemon has ended the connection."""
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""


@asynccontextmanager
async def listening(spare: int) -> AsyncIterator[Listener]:
    """A port that lets every websocket in, answers every other request, and waits for the silent."""

    async def handle(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async def answer(socket: ServerConnection, request: Request) -> Response | None:
        return None if wants_websocket(request) else Reply(HTTPStatus.OK, "x").response(socket)

    async def take(exchange: Exchange) -> None:
        await exchange.reply(Reply(HTTPStatus.OK, "y"))

    with pytest.MonkeyPatch.context() as patient:
        patient.setattr("daemon.net.listener.REQUEST_TIMEOUT", 2 * PATIENCE)
        patient.setattr("daemon.net.listener.SPARE_CONNECTIONS", spare)
        listener = Listener(handle, answer, take, Config(port=0, max_sessions=1), None)
        await listener.open([])
        yield listener
        listener.close(keep=set())
        await listener.wait_closed()
        assert not listener.sockets


async def test_beyond_their_number_the_connection_that_was_silent_longest_ends() -> None:
    """Silence keeps nobody out; whoever has asked for something stays."""
    async with listening(spare=3) as listener, connect(f"ws://{listener.address}") as client:
        idle = []
        for _ in range(3):
            idle.append(await asyncio.open_connection("127.0.0.1", listener.port))
            await until(lambda: len(listener.sockets) == len(idle) + 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()
        await gone(idle[0][0])
        await until(lambda: len(listener.sockets) == 3)
        assert not idle[1][0].at_eof()
        await (await client.ping())
        for _, writer in idle:
            writer.close()


async def test_where_everybody_has_asked_for_something_the_newcomer_goes() -> None:
    async with listening(spare=0) as listener, connect(f"ws://{listener.address}") as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await gone(reader)
        writer.close()
        await (await client.ping())


async def test_however_many_come_at_once_their_number_is_kept() -> None:
    """All of them are accepted in one turn of the loop."""
    async with listening(spare=3) as listener:
        with ExitStack() as crowd:
            for _ in range(20):
                crowd.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
            await until(lambda: len(listener.sockets) == 4)


async def begun(opened: ClientConnection) -> Client:
    """A client that has its session."""
    client = Client(opened)
    await client.say(Start())
    await client.receive_until(Ready)
    return client


async def served(inherited: socket.socket) -> bool:
    """Whether a client that is connected before anybody answers has its session."""
    sock = socket.create_connection(inherited.getsockname())
    sock.setblocking(False)
    async with connect("ws://localhost/", sock=sock, open_timeout=None) as opened:
        await (await begun(opened)).finish()
    return True


async def test_a_socket_that_is_handed_over_waits_for_the_model() -> None:
    """A client that comes while the daemon restarts is served, not refused."""
    engine = ScriptedEngine(warm=False)
    with socket.create_server(("127.0.0.1", 0)) as inherited:
        daemon = Daemon(Config(), lambda: engine, inherited=[inherited])
        await daemon.start()
        running = asyncio.create_task(daemon.run())
        waiting = asyncio.create_task(served(inherited))
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
        waiting = asyncio.create_task(served(inherited))
        assert (await get(daemon, "/livez"))[0] == 200
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
            await begun(opened)
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
            await begun(opened)
        with pytest.raises((InvalidMessage, ConnectionError)):
            await connect(f"ws://127.0.0.1:{daemon.port}")
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(url, ssl=ssl.create_default_context())


async def test_a_new_certificate_serves_new_connections_and_old_ones_stay(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    async with tls_daemon(made) as daemon:
        url = f"wss://127.0.0.1:{daemon.port}"
        async with connect(url, ssl=made.client()) as opened:
            client = await begun(opened)
            before = serial(opened.transport)
            made.renew()
            daemon.reload(Config(tls_certificate=made.certificate, tls_key=made.key))
            async with connect(url, ssl=made.client()) as other:
                assert serial(other.transport) != before
            await client.finish()


def serial(transport: asyncio.BaseTransport) -> str:
    return str(transport.get_extra_info("peercert")["serialNumber"])
