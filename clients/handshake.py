"""Opening a session: the websocket handshake, `start` or `resume`, and the errors of both.

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
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

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

from streaming import protocol

DEFAULT_URL = "ws://127.0.0.1:8765"

# A daemon with a full queue stops reading on purpose, and a ping waits behind all the audio sent
# before it: a late pong means "busy", minutes without one mean "gone".
PING_TIMEOUT_S = 600.0

CLOSE_TIMEOUT_S = 3.0  # no message follows Closed

# Messages queued while the caller is not iterating, some hundred bytes each. The websocket answers
# pings only while the queue has room, so it is long.
UNREAD_MESSAGES = 4096

# Statuses that another attempt may change: a daemon's, and those of a proxy before a starting daemon.
TRY_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
TRY_AGAIN_S = 2.0  # where the response has no Retry-After

LOADING = "warming_up"  # the header Captiond-Status of a daemon that loads


class TrackedConnection(ClientConnection):
    """A websocket that notes when the daemon's last data came, pings included: `heard_at`, monotonic."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heard_at = time.monotonic()

    def data_received(self, data: bytes) -> None:
        """Take data, and note its time."""
        self.heard_at = time.monotonic()
        super().data_received(data)

    @property
    def silent(self) -> float:
        """Seconds since the last data; 0 while reading is paused, as the caller has enough unread."""
        return time.monotonic() - self.heard_at if self.transport.is_reading() else 0.0


class StreamError(Exception):
    """Any failure of a caption stream; the text says what happened and what to do."""


class ConnectError(StreamError):
    """Nobody answers at the URL."""


class RefusedError(StreamError):
    """A daemon answers, but opens no session.

    retry_after: seconds until another attempt may succeed; None where none will.
    loading: whether the daemon still loads its model.
    """

    def __init__(
        self, message: str, retry_after: float | None = None, *, loading: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.loading = loading


class WrongProtocolError(StreamError):
    """What answers does not speak captiond.v1."""


class FatalError(StreamError):
    """The daemon ended the session; `error` is what it said."""

    def __init__(self, error: protocol.Error) -> None:
        super().__init__(f"the daemon ended the session: {error.message} ({error.code})")
        self.error = error


class ConnectionLostError(StreamError):
    """The connection ended in mid-stream."""


@dataclass(frozen=True, slots=True)
class Address:
    """A daemon's URL, and the token for it. open_timeout: seconds for each step."""

    url: str
    token: str | None
    open_timeout: float


async def open_session(
    address: Address, hello: protocol.Start | protocol.Resume
) -> tuple[TrackedConnection, protocol.Ready]:
    """A websocket with an open session, and the daemon's `ready`.

    Raises ConnectError, RefusedError, WrongProtocolError or ConnectionLostError.
    """
    query = {"resume": hello.session} if isinstance(hello, protocol.Resume) else {}
    websocket = await _open(address, query)
    try:
        return websocket, await _greet(websocket, hello, address)
    except BaseException:
        await websocket.close()
        raise


async def _open(address: Address, query: dict[str, str]) -> TrackedConnection:
    """The websocket handshake."""
    url = address.url
    target = f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(query)}" if query else url
    try:
        websocket = await open_websocket(
            target,
            subprotocols=[Subprotocol(protocol.SUBPROTOCOL)],
            additional_headers={"Authorization": f"Bearer {address.token}"}
            if address.token
            else None,
            compression=None,  # audio hardly compresses, and captions are short
            proxy=None if is_local(url) else True,
            open_timeout=address.open_timeout,
            ping_timeout=PING_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            max_queue=UNREAD_MESSAGES,
            create_connection=TrackedConnection,
        )
    except InvalidStatus as error:
        raise _refusal(address, error.response) from error
    except ssl.SSLCertVerificationError as error:
        raise ConnectError(
            f"the certificate of {url} is not to be trusted ({error.verify_message}); where it is "
            "one of your own making, name its authority in the variable SSL_CERT_FILE"
        ) from error
    except (InvalidURI, InvalidProxy, ValueError) as error:  # ValueError: a port that is no number
        raise ConnectError(f"{error}; a daemon's URL looks like {DEFAULT_URL}") from error
    except (OSError, TimeoutError) as error:
        without, scheme = ("without", "ws") if urlsplit(url).scheme == "wss" else ("with", "wss")
        hint = f"; {without} TLS its URL begins with {scheme}://"
        raise ConnectError(
            f"no daemon answers at {url} ({str(error) or type(error).__name__}){hint}; "
            "start one there: captiond serve"
        ) from error
    except InvalidHandshake as error:
        hint = "" if urlsplit(url).scheme == "wss" else "; with TLS its URL begins with wss://"
        raise WrongProtocolError(f"{url} is not a captiond daemon: {error}{hint}") from error
    if websocket.subprotocol != protocol.SUBPROTOCOL:
        await websocket.close()
        raise WrongProtocolError(f"{url} is a websocket, but does not speak {protocol.SUBPROTOCOL}")
    assert isinstance(websocket, TrackedConnection)
    return websocket


async def _greet(
    websocket: TrackedConnection, hello: protocol.Start | protocol.Resume, address: Address
) -> protocol.Ready:
    """Send `hello` and await `ready`."""
    url, patience = address.url, address.open_timeout
    try:
        async with asyncio.timeout(patience):
            await websocket.send(protocol.encode(hello))
            message = decode(await websocket.recv())
    except TimeoutError as error:
        raise ConnectError(f"the daemon at {url} did not answer within {patience:g} s") from error
    except ConnectionClosed as error:
        raise lost(error) from error
    match message:
        case protocol.Ready():
            return message
        case protocol.Error():
            raise RefusedError(f"the daemon at {url} refused: {message.message} ({message.code})")
        case _:
            raise WrongProtocolError(f"{url} sent {type(message).__name__} before Ready")


def decode(data: str | bytes) -> protocol.ServerMessage:
    """A message of the daemon's. Raises WrongProtocolError."""
    if isinstance(data, bytes):
        raise WrongProtocolError(
            f"the daemon sent a binary frame, which {protocol.SUBPROTOCOL} does not"
        )
    try:
        return protocol.decode_server(data)
    except protocol.ProtocolError as error:
        raise WrongProtocolError(
            f"the daemon sent what this {protocol.SUBPROTOCOL} client does not know ({error}); "
            "install the same version on both sides"
        ) from error


def _refusal(address: Address, response: Response) -> StreamError:
    """The error for an HTTP response in place of a websocket; a daemon's own has a reason."""
    kinds = response.headers.get_all("Content-Type")
    plain = all(kind.startswith("text/plain") for kind in kinds)
    body = (response.body or b"").decode(errors="replace").strip()[:300] if plain else ""
    reason = body or response.reason_phrase or "no reason given"
    url = address.url
    if response.status_code == 401:
        what = "wants a token" if address.token is None else "does not know this token"
        return RefusedError(f"{url} {what}: captiond takes it from the variable CAPTIOND_TOKEN")
    if response.status_code == 403:
        return RefusedError(f"{url} refused: {reason}")
    if response.status_code not in TRY_AGAIN:
        return WrongProtocolError(f"{url} answered HTTP {response.status_code}: {reason}")
    wait = response.headers.get("Retry-After", "")
    return RefusedError(
        f"the daemon at {url} takes no session now: {reason}",
        retry_after=float(wait) if wait.isdecimal() else TRY_AGAIN_S,
        loading=response.headers.get("Captiond-Status") == LOADING,
    )


def lost(error: ConnectionClosed) -> ConnectionLostError:
    """The error for a connection that ended."""
    reason = error.rcvd or error.sent or "without a word; see the daemon's log"
    return ConnectionLostError(f"the connection to the daemon ended ({reason})")


def is_local(url: str) -> bool:
    """Whether the URL names this machine, which no proxy could reach for us."""
    host = urlsplit(url).hostname
    if host is None or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
