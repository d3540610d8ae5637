"""A daemon and its clients over real sockets, for tests. The recogniser alone is a script."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
import soundfile
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Response
from websockets.typing import Subprotocol

from daemon.config import Config
from daemon.server import Daemon
from streaming import protocol
from tests.support.fakes import PATIENCE, ScriptedEngine

SAMPLE = Path(__file__).parent.parent.parent / "clients" / "sample.flac"
FRAME = 640  # bytes: 20 ms of 16 kHz mono int16

ALICE, BOB = "alices-token-is-long", "bobs-token-is-longer"

M = TypeVar("M")


@cache
def speech() -> bytes:
    """Half a minute of talk with pauses: 16 kHz mono int16."""
    samples, rate = soundfile.read(SAMPLE, dtype="int16")
    assert rate == 16_000
    return bytes(samples.tobytes())


def sentence() -> bytes:
    """Its first four seconds: one utterance at least is complete."""
    return speech()[: 4 * 32_000]


def frames(audio: bytes, size: int = 32_000) -> list[bytes]:
    """`audio` in frames of `size` bytes; by default of one second."""
    return [audio[first : first + size] for first in range(0, len(audio), size)]


def half_a_sentence() -> bytes:
    """Up to the middle of the first utterance, far enough for a partial."""
    return speech()[:44_800]


def free_port() -> int:
    """A port that nobody listens on, now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a fact that no event announces."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(
    engine: ScriptedEngine, *, warm: bool = True, **settings: Any
) -> AsyncIterator[Daemon]:
    """A daemon on a free port. Afterwards nothing of it may be left: no task, thread or socket."""
    before = asyncio.all_tasks()
    # The detector that costs least: what is tested over the wire is not how well it hears.
    hearing: dict[str, Any] = {"vad": "webrtc", "minimum_speech_ms": 120}
    # However late a frame is on a busy machine, it ends no utterance.
    config = Config(**{"port": 0, "no_audio_seconds": 0.0} | hearing | settings)
    daemon = Daemon(config, lambda: engine)
    await daemon.start()
    running = asyncio.create_task(daemon.run())
    try:
        if warm:
            await asyncio.wait_for(daemon.ready.wait(), PATIENCE)
        yield daemon
    finally:
        engine.release()
        engine.finish_warm_up()
        daemon.stop()
        await asyncio.wait_for(running, PATIENCE)
    await until(lambda: asyncio.all_tasks() <= before)
    await until(lambda: all(thread.name != "engine" for thread in threading.enumerate()))
    assert not daemon.listener.sockets
    assert not daemon.admission.admitted
    assert not daemon.connections
    assert not len(daemon.sessions)
    assert not engine.occupied


class Client:
    """Speaks the protocol by hand, so that it can also speak it wrongly."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: list[protocol.ServerMessage] = []

    async def say(self, *messages: protocol.ClientMessage | str | bytes) -> None:
        for message in messages:
            raw = message if isinstance(message, str | bytes) else protocol.encode(message)
            await self.socket.send(raw)

    async def receive(self) -> protocol.ServerMessage:
        # Not wait_for: in Python 3.11 it drops a cancellation that comes together with the result.
        async with asyncio.timeout(PATIENCE):
            text = await self.socket.recv(decode=True)
        self.heard.append(protocol.decode_server(text))
        return self.heard[-1]

    async def receive_until(self, kind: type[M]) -> M:
        """The next message of `kind`; those before it stay in `heard`."""
        while not isinstance(message := await self.receive(), kind):
            pass
        return message

    async def hear_all(self) -> list[protocol.ServerMessage]:
        """Everything until the session is closed."""
        await self.receive_until(protocol.Closed)
        return self.heard

    async def finish(self, *messages: protocol.ClientMessage | str | bytes) -> None:
        """Say these and stop, and hear everything until the session is closed."""
        await self.say(*messages, protocol.Stop())
        await self.hear_all()

    async def hang_up(self) -> tuple[int | None, str | None]:
        """Wait until the daemon closes; code and reason."""
        with suppress(ConnectionClosed):
            while True:
                await self.receive()
        return self.socket.close_code, self.socket.close_reason

    def all(self, kind: type[M]) -> list[M]:
        return [message for message in self.heard if isinstance(message, kind)]


@asynccontextmanager
async def calling(daemon: Daemon, path: str = "/", **options: Any) -> AsyncIterator[Client]:
    """A websocket to the daemon, before any message."""
    options = {"subprotocols": [Subprotocol(protocol.SUBPROTOCOL)]} | options
    async with connect(f"ws://127.0.0.1:{daemon.port}{path}", **options) as websocket:
        yield Client(websocket)


async def refusal(daemon: Daemon, path: str = "/", **options: Any) -> Response:
    """What a websocket that is not let in is told."""
    with pytest.raises(InvalidStatus) as caught:
        async with calling(daemon, path, **options):
            pass
    return caught.value.response


def bearer(token: str) -> dict[str, Any]:
    """The options of a connection that shows a token."""
    return {"additional_headers": {"Authorization": f"Bearer {token}"}}


async def talk(daemon: Daemon, start: protocol.Start | None = None) -> list[protocol.Final]:
    """A whole session that does everything right; its finals."""
    async with calling(daemon) as client:
        await client.finish(start or protocol.Start(), sentence())
        assert await client.hang_up() == (1000, "")
        return client.all(protocol.Final)


async def exchange(daemon: Daemon, *lines: str) -> tuple[str, bytes]:
    """Plain HTTP: a request line and headers; the head and body of what comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
    writer.write("\r\n".join([*lines, "Host: localhost", "", ""]).encode())
    answer = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode(), body


async def get(daemon: Daemon, path: str) -> tuple[int, str, str]:
    """Status, headers and body of what stands at `path`."""
    head, body = await exchange(daemon, f"GET {path} HTTP/1.1")
    return int(head.split()[1]), head, body.decode()


async def health(daemon: Daemon) -> tuple[int, dict[str, Any]]:
    status, head, body = await get(daemon, "/healthz")
    assert "application/json" in head
    return status, json.loads(body)
