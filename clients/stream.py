"""The captiond client as a library: send audio, iterate over captions.

Knows the wire and nothing else: no files, no devices, no terminal.

    async with connect("ws://127.0.0.1:8765", Start(language="en")) as captions:
        async with asyncio.TaskGroup() as group:
            group.create_task(speak(captions))      # await captions.send(pcm) …, await captions.stop()
            async for message in captions:          # Speech, Partial, Final, …, Closed
                show(message)

Send and iterate at the same time, as above: a daemon whose captions nobody reads stops reading audio.

Every error is a StreamError:

    StreamError
     ├─ ConnectError         nobody answers at the URL
     ├─ RefusedError         a daemon answers but opens no session: busy, loading, values it cannot serve
     ├─ WrongProtocolError   what answers does not speak captiond.v1
     ├─ FatalError           the daemon ended the session with a fatal `error` message
     └─ ConnectionLostError  the connection ended in mid-stream
"""

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidProxy,
    InvalidStatus,
    InvalidURI,
)
from websockets.http11 import Response
from websockets.typing import Subprotocol

from streaming.protocol import (
    SUBPROTOCOL,
    Closed,
    Error,
    Flush,
    ProtocolError,
    Ready,
    ServerMessage,
    Start,
    Stop,
    decode_client,
    decode_server,
    encode,
)

DEFAULT_URL = "ws://127.0.0.1:8765"
DEFAULT_START = Start()

# A daemon with a full backlog stops reading on purpose, and a ping waits behind all the audio sent
# before it: a late answer means "busy", minutes without one mean "gone".
PING_TIMEOUT_S = 600.0

CLOSE_TIMEOUT_S = 3.0  # nothing of value follows Closed

# Messages kept while the caller is not iterating. Pings are answered only while there is room, so
# room is plentiful: some hundred bytes each.
UNREAD_MESSAGES = 4096


class StreamError(Exception):
    """Any failure of a caption stream; the text says what happened and what to do."""


class ConnectError(StreamError):
    """Nobody answers at the URL."""


class RefusedError(StreamError):
    """A daemon answers, but opens no session.

    retry_after: seconds after which it asks to be tried again; None where trying again is no use.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class WrongProtocolError(StreamError):
    """What answers does not speak captiond.v1."""


class FatalError(StreamError):
    """The daemon ended the session; `error` is what it said."""

    def __init__(self, error: Error) -> None:
        super().__init__(f"the daemon ended the session: {error.message} ({error.code})")
        self.error = error


class ConnectionLostError(StreamError):
    """The connection ended in mid-stream."""


class Captions:
    """One session, made by `connect`.

    ready: what the daemon announced: session, model, limits.
    """

    def __init__(self, websocket: ClientConnection, ready: Ready) -> None:
        self.ready = ready
        self._websocket = websocket
        self._stopped = False

    async def send(self, pcm: bytes) -> None:
        """Send audio in the format that Start announced; any length, cut to the daemon's limit.

        Returns when the socket has taken it: awaiting this is the backpressure. Raises
        ConnectionLostError once the connection is over; iterating then tells why. Raises
        RuntimeError after `stop`.
        """
        if self._stopped:
            raise RuntimeError("the stream was stopped: no audio can follow")
        view = memoryview(pcm).cast("B")
        for position in range(0, len(view), self.ready.limits.frame_bytes):
            await self._put(view[position : position + self.ready.limits.frame_bytes])

    async def flush(self) -> None:
        """End the current utterance now; the stream goes on. Raises as `send` does."""
        if self._stopped:
            raise RuntimeError("the stream was stopped: nothing is left to flush")
        await self._put(encode(Flush()))

    async def stop(self) -> None:
        """End of audio: the pending finals and Closed follow. A second call does nothing.

        Raises ConnectionLostError once the connection is over.
        """
        if not self._stopped:
            self._stopped = True
            await self._put(encode(Stop()))

    async def __aiter__(self) -> AsyncIterator[ServerMessage]:
        """Every message after `ready`, up to and including Closed.

        A fatal error is yielded like any message, and so is all that follows it: a daemon that
        shuts down still delivers what was spoken. Only then FatalError is raised. Raises
        ConnectionLostError if the stream ends without Closed or before `stop`, and
        WrongProtocolError on a message that captiond.v1 does not know.
        """
        fatal: Error | None = None
        closed = False
        try:
            while not closed:
                message = _decode(await self._websocket.recv())
                if isinstance(message, Error) and message.fatal:
                    fatal = message
                closed = isinstance(message, Closed)
                yield message
        except ConnectionClosed as error:
            if fatal is None:
                raise _lost(error) from error
        if fatal is not None:
            raise FatalError(fatal)
        if not self._stopped:
            raise ConnectionLostError("the daemon closed the session before the end of the audio")

    async def _put(self, data: str | memoryview) -> None:
        """The only door to the socket."""
        try:
            await self._websocket.send(data)
        except ConnectionClosed as error:
            raise _lost(error) from error


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL, start: Start = DEFAULT_START, *, open_timeout: float = 10.0
) -> AsyncIterator[Captions]:
    """Open a session; leaving the context closes it.

    open_timeout: seconds for the handshake, and again for the daemon's `ready`.

    Raises streaming.protocol.ProtocolError, before anything is sent, for a `start` outside the
    protocol; ConnectError, RefusedError or WrongProtocolError if no session comes about.
    """
    hello = encode(start)
    decode_client(hello)  # structs are not checked when they are made; this names the wrong field
    websocket = await _open(url, open_timeout)
    async with websocket:
        yield Captions(websocket, await _greet(websocket, hello, url, open_timeout))


async def _open(url: str, timeout_s: float) -> ClientConnection:
    """The opening handshake."""
    try:
        websocket = await open_websocket(
            url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,  # audio hardly compresses, and captions are short
            proxy=None if _is_local(url) else True,
            open_timeout=timeout_s,
            ping_timeout=PING_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            max_queue=UNREAD_MESSAGES,
        )
    except InvalidStatus as error:
        raise _refusal(url, error.response) from error
    except (InvalidURI, InvalidProxy, ValueError) as error:  # ValueError: a port that is no number
        raise ConnectError(f"{error}; a daemon's URL looks like {DEFAULT_URL}") from error
    except (OSError, TimeoutError) as error:
        raise ConnectError(
            f"no daemon answers at {url} ({error}); start one there: captiond serve"
        ) from error
    except InvalidHandshake as error:
        raise WrongProtocolError(f"{url} is not a captiond daemon: {error}") from error
    if websocket.subprotocol != SUBPROTOCOL:
        await websocket.close()
        raise WrongProtocolError(f"{url} is a websocket, but does not speak {SUBPROTOCOL}")
    return websocket


async def _greet(websocket: ClientConnection, hello: str, url: str, timeout_s: float) -> Ready:
    """Send `start`, await `ready`."""
    try:
        async with asyncio.timeout(timeout_s):
            await websocket.send(hello)
            message = _decode(await websocket.recv())
    except TimeoutError as error:
        raise ConnectError(f"the daemon at {url} did not answer within {timeout_s:g} s") from error
    except ConnectionClosed as error:
        raise _lost(error) from error
    match message:
        case Ready():
            return message
        case Error():
            raise RefusedError(f"the daemon at {url} refused: {message.message} ({message.code})")
        case _:
            raise WrongProtocolError(f"{url} sent {type(message).__name__} before Ready")


def _decode(data: str | bytes) -> ServerMessage:
    if isinstance(data, bytes):
        raise WrongProtocolError(f"the daemon sent a binary frame, which {SUBPROTOCOL} does not")
    try:
        return decode_server(data)
    except ProtocolError as error:
        raise WrongProtocolError(
            f"the daemon sent what this {SUBPROTOCOL} client does not know ({error}); "
            "install the same version on both sides"
        ) from error


def _refusal(url: str, response: Response) -> StreamError:
    """An HTTP status in place of a websocket: 503 is a daemon without a free session, or loading."""
    body = (response.body or b"").decode(errors="replace").strip()[:300]
    reason = body or response.reason_phrase or "no reason given"
    if response.status_code != 503:
        return WrongProtocolError(f"{url} answered HTTP {response.status_code}: {reason}")
    wait = response.headers.get("Retry-After", "")
    return RefusedError(
        f"the daemon at {url} takes no session now: {reason}",
        retry_after=float(wait) if wait.isdecimal() else None,
    )


def _lost(error: ConnectionClosed) -> ConnectionLostError:
    reason = error.rcvd or error.sent or "without a word; see the daemon's log"
    return ConnectionLostError(f"the connection to the daemon ended ({reason})")


def _is_local(url: str) -> bool:
    """Whether the URL names this machine, which no proxy could reach for us."""
    host = urlsplit(url).hostname
    if host is None or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
