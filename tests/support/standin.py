"""A captiond.v1 server by script: real sockets, no engine.

Each test says in a script, a coroutine over `Peer`, how the daemon behaves; what the client sent is
kept for it to judge. A script that fails makes the test fail when the server ends.
"""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from msgspec import structs
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from streaming import protocol

FIGURES = protocol.DecodeFigures(rounds=1, proposed=0, accepted=0, reused=0, ms=1.0)


def final(
    text: str,
    start: float = 0.0,
    end: float = 1.0,
    utterance: int = 0,
    words: list[protocol.Word] | None = None,
) -> protocol.Final:
    return protocol.Final(
        utterance=utterance,
        start=start,
        end=end,
        text=text,
        language="en",
        no_speech=0.0,
        mean_logprob=-0.1,
        words=words,
        decode=FIGURES,
    )


def spoken(*words: tuple[str, float, float]) -> list[protocol.Word]:
    """Words of a final: each with its start and its end."""
    return [
        protocol.Word(text=text, start=start, end=end, probability=0.9)
        for text, start, end in words
    ]


def partial(text: str, stable: int = 0, utterance: int = 0) -> protocol.Partial:
    return protocol.Partial(utterance=utterance, start=0.0, end=0.5, text=text, stable=stable)


def closed(received: int = 16_000) -> protocol.Closed:
    return protocol.Closed(received=received, speech=received, silence=0, refused=0, finals=1)


def ready(frame_bytes: int = 1 << 20) -> protocol.Ready:
    limits = protocol.Limits(frame_bytes=frame_bytes, utterance_seconds=30.0, buffered_seconds=60.0)
    return protocol.Ready(session="s1", model="scripted", drafter=None, limits=limits)


@dataclass
class Peer:
    """One connection, seen from the daemon, and all that the client sent over it."""

    websocket: ServerConnection
    frames: list[bytes] = field(default_factory=list)
    messages: list[protocol.ClientMessage] = field(default_factory=list)

    @property
    def audio(self) -> bytes:
        return b"".join(self.frames)

    @property
    def start(self) -> protocol.Start:
        """What the caller asked for; whether it can be resumed is the library's own wish."""
        first = self.messages[0]
        assert isinstance(first, protocol.Start)
        return structs.replace(first, resumable=False)

    async def receive(self) -> protocol.ClientMessage | bytes:
        data = await self.websocket.recv()
        if isinstance(data, bytes):
            self.frames.append(data)
            return data
        message = protocol.decode_client(data)
        self.messages.append(message)
        return message

    async def until(self, kind: type[protocol.ClientMessage | bytes]) -> None:
        while not isinstance(await self.receive(), kind):
            pass

    async def send(self, *messages: protocol.ServerMessage) -> None:
        for message in messages:
            await self.websocket.send(protocol.encode(message))

    async def open(self, frame_bytes: int = 1 << 20) -> None:
        await self.until(protocol.Start)
        await self.send(ready(frame_bytes))


Script = Callable[[Peer], Awaitable[None]]
Gate = Callable[[ServerConnection, Request], Response | None]


async def obedient(peer: Peer) -> None:
    """A final for every flush, one more at the end: "one", "two", …"""
    await peer.open()
    words = iter(["one", "two", "three"])
    while not isinstance(message := await peer.receive(), protocol.Stop):
        if isinstance(message, protocol.Flush):
            await peer.send(final(next(words)))
    await peer.send(final(next(words)), closed(len(peer.audio) // 2))


def answering(
    *messages: protocol.ServerMessage, early: Sequence[protocol.ServerMessage] = ()
) -> Script:
    """A script that says `early` at the first sound, and `messages` after `stop`."""

    async def script(peer: Peer) -> None:
        await peer.open()
        if early:
            await peer.until(bytes)
            await peer.send(*early)
        await peer.until(protocol.Stop)
        await peer.send(*messages)

    return script


def interrupted(
    after: int = 1,
    early: Sequence[protocol.ServerMessage] = (),
    number: signal.Signals = signal.SIGINT,
) -> Script:
    """A daemon whose user interrupts once `after` bytes and, behind what it says `early`, more have come."""

    async def script(peer: Peer) -> None:
        await peer.open()
        while len(peer.audio) < after:
            await peer.receive()
        if early:
            await peer.send(*early)
            await peer.until(bytes)
        os.kill(os.getpid(), number)
        await peer.until(protocol.Stop)
        await peer.send(final("spoken so far"), closed())

    return script


@dataclass
class Standin:
    """A running server."""

    url: str
    peers: list[Peer]


@asynccontextmanager
async def standin(
    script: Script = obedient,
    *,
    subprotocol: str | None = protocol.SUBPROTOCOL,
    gate: Gate | None = None,
) -> AsyncIterator[Standin]:
    """The server in this event loop. `gate` may answer the handshake in HTTP."""
    peers: list[Peer] = []
    failures: list[Exception] = []

    async def handle(websocket: ServerConnection) -> None:
        peer = Peer(websocket)
        peers.append(peer)
        try:
            await script(peer)
        except ConnectionClosed:
            pass  # the client went first
        except Exception as error:
            failures.append(error)
            raise

    async with serve(
        handle,
        "127.0.0.1",
        0,
        subprotocols=[Subprotocol(subprotocol)] if subprotocol else None,
        compression=None,
        process_request=gate,
        max_queue=2,
        close_timeout=20,
    ) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield Standin(f"ws://127.0.0.1:{port}", peers)
    if failures:
        raise failures[0]


@contextmanager
def standin_thread(script: Script = obedient, *, gate: Gate | None = None) -> Iterator[Standin]:
    """The server in a thread of its own, for programs that run an event loop themselves."""
    started: Future[tuple[Standin, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()

    async def main() -> None:
        stop = asyncio.Event()
        async with standin(script, gate=gate) as server:
            started.set_result((server, asyncio.get_running_loop(), stop))
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(main())
        except Exception as error:  # noqa: BLE001 - all of it belongs to the test's own thread
            ended.set_exception(error)
        else:
            ended.set_result(None)

    thread = threading.Thread(target=work)
    thread.start()
    server, loop, stop = started.result()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
    ended.result()


START_OF_SPEECH = protocol.Speech(event="start", utterance=0, at=0.0)
SECOND_START = protocol.Speech(event="start", utterance=1, at=1.0)


async def collect(
    captions: AsyncIterator[protocol.ServerMessage], into: list[protocol.ServerMessage]
) -> None:
    async for message in captions:
        into.append(message)  # noqa: PERF401 - a comprehension would lose all of it on an error


SESSION: tuple[protocol.ServerMessage, ...] = (
    ready(),
    protocol.Speech(event="start", utterance=0, at=0.5),
    partial("good"),
    final(" Good <b>morning</b> & bye", 0.5, 1.75),
    final("", 2.0, 2.5, utterance=1),
    protocol.Lag(seconds=3.0, shedding="partials"),
    protocol.Heard(bytes=9),
    final(" --> two", 3.0, 3.5, utterance=2),
    closed(64_000),
)
