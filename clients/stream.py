"""The captiond client as a library: send audio, iterate over captions.

Knows the wire alone: no files, no devices, no terminal.

    async with connect("ws://127.0.0.1:8765", Start(language="en")) as captions:
        async with asyncio.TaskGroup() as group:
            group.create_task(speak(captions))      # await captions.send(pcm) …, await captions.stop()
            async for message in captions:          # Speech, Partial, Final, …, Closed
                show(message)

Send and iterate at the same time, as above: the daemon stops reading audio while nobody reads captions.

A broken connection is replaced: the session is resumed on another one, the audio that the daemon lacks
is sent again, and the caller notices a delay at most. An error comes only where that fails, or the
daemon itself ended the session; clients/handshake.py has the tree of errors.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed

from clients.handshake import (
    DEFAULT_URL,
    Address,
    ConnectError,
    ConnectionLostError,
    FatalError,
    RefusedError,
    StreamError,
    TrackedConnection,
    WrongProtocolError,
    decode,
    lost,
    open_session,
)
from clients.replay import Answers, Replay
from streaming import protocol

__all__ = [
    "DEFAULT_URL",
    "Captions",
    "ConnectError",
    "ConnectionLostError",
    "FatalError",
    "RefusedError",
    "StreamError",
    "WrongProtocolError",
    "connect",
]

DEFAULT_START = protocol.Start()
SILENT_S = 45.0  # without data: a daemon pings every 20 s, so the connection is broken
ATTEMPT_S = 8.0  # for each step of an attempt to resume
BACKOFF_S = (0.0, 0.2, 0.5, 1.0, 2.0)  # before attempts to resume; the last one repeats

logger = logging.getLogger(__name__)


def _speech_order(message: protocol.Speech) -> tuple[int, bool]:
    """A key that grows from one speech message of a session to the next."""
    return message.utterance, message.event == "end"


class Captions:
    """One session, made by `connect`.

    ready: the daemon's answer: session, model, limits.
    """

    def __init__(
        self, websocket: TrackedConnection, ready: protocol.Ready, address: Address
    ) -> None:
        self.ready = ready
        self._websocket = websocket
        self._address = address
        self._stopped = False
        self._replay = Replay()
        self._resend_from: int | None = None  # a resumed daemon's position, until the rest is sent
        self._failure: StreamError | None = None  # why the session cannot be resumed
        self._resumed = False  # once: then messages may come a second time
        self._finals = 0
        self._speech = -1, False
        self._answers = {protocol.Flushed: Answers(), protocol.Configured: Answers()}
        self._failed: protocol.Error | None = None
        self._sending = asyncio.Lock()
        self._resuming = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, pcm: bytes) -> None:
        """Send audio in the format that Start announced; any length, cut to the daemon's limit.

        Returns when the socket has taken it: awaiting this is the backpressure. Raises
        ConnectionLostError once the session is over; iterating then tells why. Raises
        RuntimeError after `stop`.
        """
        if self._stopped:
            raise RuntimeError("the stream was stopped: no audio can follow")
        view = memoryview(pcm).cast("B")
        for answers in self._answers.values() if view else ():
            answers.audio()
        for position in range(0, len(view), self.ready.limits.frame_bytes):
            await self._put(bytes(view[position : position + self.ready.limits.frame_bytes]))

    async def configure(self, change: protocol.Configure) -> None:
        """Change language, task, prompt or hot words from the next utterance on. Raises as `send` does.

        The answer is a `Configured` message, or an `Error` where the daemon cannot do it. Raises
        streaming.protocol.ProtocolError, before anything is sent, for a `change` outside the protocol.
        """
        if self._stopped:
            raise RuntimeError("the stream was stopped: nothing can be configured")
        text = protocol.encode(change)
        protocol.decode_client(text)  # structs are not checked when they are made
        self._answers[protocol.Configured].ask()
        await self._put(text)

    async def flush(self) -> None:
        """End the current utterance now; the stream goes on. Raises as `send` does.

        The answer is a `Flushed` message, after the finals of all speech before it.
        """
        if self._stopped:
            raise RuntimeError("the stream was stopped: nothing is left to flush")
        self._answers[protocol.Flushed].ask()
        await self._put(protocol.encode(protocol.Flush()))

    async def stop(self) -> None:
        """End of audio: the pending finals and Closed follow. A second call does nothing.

        Raises ConnectionLostError once the session is over.
        """
        if not self._stopped:
            self._stopped = True
            await self._put(protocol.encode(protocol.Stop()))

    async def __aiter__(self) -> AsyncIterator[protocol.ServerMessage]:
        """Every message after `ready`, up to and including Closed, each once.

        A fatal error is yielded like any message, and so are those that follow it: a daemon that
        shuts down still delivers pending finals. Only then FatalError is raised. Raises
        ConnectionLostError if the stream ends without Closed or before `stop`, and
        WrongProtocolError on a message that is not in captiond.v1.
        """
        fatal: protocol.Error | None = None
        closed = False
        while not closed:
            websocket = self._websocket
            try:
                message = decode(await websocket.recv())
            except ConnectionClosed as error:
                if fatal is not None:
                    break
                await self._resume(websocket, error)
                self._in_background(self._resend())
                continue
            if not self._is_news(message):
                continue
            if isinstance(message, protocol.Error) and message.fatal:
                fatal = message
            closed = isinstance(message, protocol.Closed)
            yield message
        if fatal is not None:
            raise FatalError(fatal)
        if not self._stopped:
            raise ConnectionLostError("the daemon closed the session before the end of the audio")

    async def close(self) -> None:
        """Close the connection; pending messages are lost."""
        for task in self._tasks:
            task.cancel()
        await self._websocket.close()

    async def watch(self) -> None:
        """Close connections on which no data comes, so that they are resumed. For `connect`."""
        while True:
            await asyncio.sleep(SILENT_S / 10)
            if self.ready.key is not None and self._websocket.silent > SILENT_S:
                self._websocket.transport.abort()

    def _is_news(self, message: protocol.ServerMessage) -> bool:
        """Whether the message is new to the caller; notes what must not be lost or come twice."""
        match message:
            case protocol.Heard():
                self._replay.acknowledge(message.bytes)
                return False
            case protocol.Final():
                if self._resumed and message.utterance < self._finals:
                    return False
                self._finals += 1
            case protocol.Speech():
                if self._resumed and _speech_order(message) <= self._speech:
                    return False
                self._speech = _speech_order(message)
            case protocol.Flushed() | protocol.Configured():
                return self._answers[type(message)].is_news(message.at, resumed=self._resumed)
            case protocol.Error(code="decode_failed"):
                if self._resumed and message == self._failed:
                    return False
                self._failed = message
            case _:
                pass
        return True

    async def _put(self, item: bytes | str) -> None:
        """Send an item; all sending goes through here. A cancelled caller leaves no partial message."""
        task = self._in_background(self._send_in_turn(item))
        await asyncio.shield(task)

    async def _send_in_turn(self, item: bytes | str) -> None:
        async with self._sending:
            if self.ready.key is not None:
                if isinstance(item, bytes):
                    self._replay.audio(item)
                else:
                    self._replay.mark(item)
            while True:
                websocket = self._websocket
                try:
                    if self._resend_from is None:
                        await websocket.send(item)
                    else:  # the item is part of the rest
                        await self._send_rest(websocket, self._resend_from)
                except ConnectionClosed as error:
                    await self._resume(websocket, error)
                else:
                    return

    async def _resend(self) -> None:
        """Send what a resumed daemon lacks, if that is not done. A loss shows when reading."""
        async with self._sending:
            if self._resend_from is not None:
                try:
                    await self._send_rest(self._websocket, self._resend_from)
                except ConnectionClosed:
                    return

    async def _send_rest(self, websocket: TrackedConnection, position: int) -> None:
        self._replay.acknowledge(position)
        for item in self._replay.rest(position):
            await websocket.send(item)
        if websocket is self._websocket:
            self._resend_from = None

    async def _resume(self, broken: TrackedConnection, error: ConnectionClosed) -> None:
        """Replace the connection `broken`, unless that is done. Raises ConnectionLostError."""
        async with self._resuming:
            if self._failure is not None:
                raise ConnectionLostError(str(self._failure)) from error
            if self._websocket is not broken:
                return
            try:
                self._websocket, again = await self._reopen(error)
            except StreamError as failure:
                self._failure = failure
                raise
            self._resend_from = again.heard
            self._resumed = True

    async def _reopen(self, error: ConnectionClosed) -> tuple[TrackedConnection, protocol.Ready]:
        """Try at growing intervals, for as long as the daemon keeps the session."""
        # A close frame is the daemon's decision: the session is gone.
        if self.ready.key is None or error.rcvd is not None:
            raise lost(error) from error
        began = time.monotonic()
        # One attempt may not use up the time of all.
        address = replace(self._address, open_timeout=min(self._address.open_timeout, ATTEMPT_S))
        logger.info("the connection is lost (%s); resuming session %s", error, self.ready.session)
        latest: StreamError | None = None
        for pause in chain(BACKOFF_S, repeat(BACKOFF_S[-1])):
            if time.monotonic() - began + pause > self.ready.limits.resume_seconds:
                break
            await asyncio.sleep(pause)
            wish = protocol.Resume(
                session=self.ready.session,
                key=self.ready.key,
                finals=self._finals,
                heard=self._replay.start,
            )
            try:
                opened = await open_session(address, wish)
            except RefusedError as refusal:
                if refusal.retry_after is None:
                    raise ConnectionLostError(f"{lost(error)}, and {refusal}") from refusal
                latest = refusal
            except StreamError as failure:
                # A daemon was here. What stands in front of it, a balancer or a tunnel, may answer
                # anything while it is away: hang up, or say in HTTP that it finds nobody.
                latest = failure
            else:
                logger.info("the connection is mended; nothing is lost")
                return opened
        why = f": {latest}" if latest is not None else ""
        raise ConnectionLostError(
            f"{lost(error)}, and cannot be made again in time{why}"
        ) from error

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_retrieve)
        return task


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve the failure of a task that nothing awaits: iterating raises it, too."""
    if not task.cancelled():
        task.exception()


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    start: protocol.Start = DEFAULT_START,
    *,
    token: str | None = None,
    resume: bool = True,
    open_timeout: float = 60.0,
) -> AsyncIterator[Captions]:
    """Open a session; leaving the context closes it.

    token: for a daemon that asks for one. resume: whether a broken connection is replaced.
    open_timeout: seconds for the handshake, and again for the daemon's `ready`; a daemon that is
    started by its socket may let the handshake wait until it has loaded its model.

    Raises streaming.protocol.ProtocolError, before anything is sent, for a `start` outside the
    protocol; ConnectError, RefusedError or WrongProtocolError if no session comes about.
    """
    start = msgspec.structs.replace(start, resumable=resume)
    protocol.decode_client(protocol.encode(start))  # structs are not checked when they are made
    address = Address(url, token, open_timeout)
    captions = Captions(*await open_session(address, start), address)
    watching = asyncio.create_task(captions.watch())
    try:
        yield captions
    finally:
        watching.cancel()
        await captions.close()
