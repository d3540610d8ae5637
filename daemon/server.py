"""The listener: who is let in, how the daemon is, and how it starts and stops.

What happens inside a connection is daemon/connection.py's; nothing here reads a frame.

Life cycle: `start` binds the port and begins to load the model; `run` serves until `stop` and
leaves nothing behind. While the model loads, /healthz says so and websockets are refused by HTTP 503.
"""

import asyncio
import json
import logging
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from daemon.config import Config
from daemon.connection import Connection, Service
from daemon.page import Page
from daemon.scheduler import Engine, Scheduler
from streaming.protocol import SUBPROTOCOL
from streaming.segmenter import Settings

logger = logging.getLogger(__name__)

Status = Literal["ok", "warming_up", "stalled", "stopping"]

METHODS = ("GET", "HEAD")
WEBSOCKET_PATHS = ("/", "/v1")
RETRY_AFTER = "5"  # seconds, for HTTP 503

PING_INTERVAL = 20.0  # seconds: keeps proxies from closing a connection that is silent
PEER_TIMEOUT = 60  # seconds that a client may neither answer nor read
QUEUED_FRAMES = 4  # read ahead, each up to max_frame_bytes; a slow session must not hoard
LAST_ROUND = 10.0  # seconds granted to the engine's last round


class ListenError(Exception):
    """The address cannot be bound; the message is a full sentence."""


class Daemon:
    """The captioning service on one port.

    load: makes the engine; called in the scheduler's thread. stalled_after: seconds without decode
    progress, with work at hand, after which the daemon calls itself unhealthy.
    """

    def __init__(
        self, config: Config, load: Callable[[], Engine], *, stalled_after: float = 60.0
    ) -> None:
        self._config = config
        self._stalled_after = stalled_after
        self._settings = Settings(
            vad_mode=config.vad_mode,
            minimum_speech_ms=config.minimum_speech_ms,
            endpoint_silence_ms=config.endpoint_silence_ms,
            partial_interval_ms=config.partial_interval_ms,
        )
        self._scheduler = Scheduler(load, asyncio.get_running_loop())
        self._page = Page()
        self._service: Service | None = None  # once the engine is warm
        self._sockets: set[ServerConnection] = set()  # every TCP connection, handshake or not
        self._admitted: set[ServerConnection] = set()  # those that take up a session
        self._connections: set[Connection] = set()
        self._stop_requested = asyncio.Event()
        self._stop_insisted = asyncio.Event()
        self._began = time.monotonic()
        self._server: Server
        self._warm: asyncio.Future[Engine]
        self.ready = asyncio.Event()
        """Set when clients are welcome."""

    @property
    def port(self) -> int:
        """The port bound by `start`, also where the configuration says 0."""
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Bind the port and begin to load the model. Raises ListenError."""
        try:
            self._server = await self._listen()
        except OSError as error:
            host, port = self._config.host, self._config.port
            raise ListenError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
        self._warm = asyncio.wrap_future(self._scheduler.start())

    async def _listen(self) -> Server:
        return await serve(
            self._handle,
            self._config.host,
            self._config.port,
            # PCM hardly shrinks by deflate, which would cost more than the audio's own processing.
            compression=None,
            create_connection=_tracked(self._sockets),
            select_subprotocol=_select_subprotocol,
            process_request=self._answer,
            max_size=self._config.max_frame_bytes,
            max_queue=QUEUED_FRAMES,
            ping_interval=PING_INTERVAL,
            # Pongs wait behind audio while reading is paused, so their absence proves nothing; the
            # kernel finds dead peers instead (_watch_peer).
            ping_timeout=None,
        )

    async def run(self) -> None:
        """Serve until `stop`. Raises what loading the engine raises."""
        stop = asyncio.create_task(self._stop_requested.wait())
        try:
            either: set[asyncio.Future[Any]] = {self._warm, stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._warm.done():
                self._welcome(self._warm.result())
                await stop
        finally:
            stop.cancel()
            self._warm.cancel()
            await self._drain()
            # An engine that is still loading cannot be interrupted; its thread ends with the process.
            patience = LAST_ROUND if self._service is not None else 0.0
            if not await asyncio.to_thread(self._scheduler.stop, patience) and patience:
                logger.error("the engine hangs in a round and is abandoned")

    def stop(self) -> None:
        """Ask `run` to finish: pending finals are still delivered. Asked twice, it drops them."""
        if self._stop_requested.is_set():
            self._stop_insisted.set()
        self._stop_requested.set()

    @property
    def status(self) -> Status:
        """What /healthz says first."""
        if self._stop_requested.is_set():
            return "stopping"
        if self._service is None:
            return "warming_up"
        return "stalled" if self._scheduler.facts().idle > self._stalled_after else "ok"

    def _welcome(self, engine: Engine) -> None:
        self._service = Service(self._config, self._settings, self._scheduler, engine)
        seconds = time.monotonic() - self._began
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        address = f"ws://{host}:{self.port}"
        logger.info(
            "ready on %s (model %s, drafter %s, %.1f s)",
            address,
            engine.name,
            engine.drafter or "none",
            seconds,
        )
        self.ready.set()

    async def _drain(self) -> None:
        """Refuse the new, finish the old, then drop what is left."""
        self._server.close(close_connections=False)
        for connection in list(self._connections):
            connection.shut_down()
        for idle in self._sockets - self._admitted:
            idle.transport.abort()
        closed = asyncio.create_task(self._server.wait_closed())
        insisted = asyncio.create_task(self._stop_insisted.wait())
        await asyncio.wait(
            {closed, insisted},
            timeout=self._config.shutdown_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        insisted.cancel()
        if self._sockets:
            logger.warning("%d connections are dropped before their end", len(self._sockets))
        for late in list(self._sockets):
            late.transport.abort()
        await closed

    def _answer(self, socket: ServerConnection, request: Request) -> Response | None:
        """Reply to a request before it becomes a websocket; None lets it become one."""
        if request.method not in METHODS:
            text = f"{request.method} is not served here: use {' or '.join(METHODS)}\n"
            response = socket.respond(HTTPStatus.METHOD_NOT_ALLOWED, text)
            response.headers["Allow"] = ", ".join(METHODS)
            return response
        reply = self._route(socket, request)
        if reply is not None and request.method == "HEAD":
            reply.body = b""  # its length stays told (RFC 9110, 9.3.2)
        return reply

    def _route(self, socket: ServerConnection, request: Request) -> Response | None:
        path = urlsplit(request.path).path
        if path == "/healthz":
            return self._health(socket)
        upgrades = [value.lower() for value in request.headers.get_all("Upgrade")] == ["websocket"]
        if not upgrades and (response := self._page.answer(path, request)) is not None:
            return response
        if path not in WEBSOCKET_PATHS:
            text = f"nothing is here: captions are at / (websocket, {SUBPROTOCOL}), health at /healthz\n"
            return socket.respond(HTTPStatus.NOT_FOUND, text)
        if not upgrades:
            return self._point_out(socket)
        offered = _offered(request)
        if offered and SUBPROTOCOL not in offered:
            text = f"unknown subprotocol {', '.join(offered)}: this daemon speaks {SUBPROTOCOL}\n"
            return socket.respond(HTTPStatus.BAD_REQUEST, text)
        return self._admit(socket)

    def _point_out(self, socket: ServerConnection) -> Response:
        """Tell a plain request that a websocket is wanted; or what refuses one now: a browser hears
        nothing of why its websocket failed, so the page asks in this way.
        """
        reason = self._obstacle()
        if reason is not None:
            return _refuse(socket, reason)
        text = f"this is captiond: connect by websocket, subprotocol {SUBPROTOCOL}\n"
        response = socket.respond(HTTPStatus.UPGRADE_REQUIRED, text)
        response.headers["Upgrade"] = "websocket"
        return response

    def _obstacle(self) -> str | None:
        """Why there is no session for anyone more; None where there is one."""
        status, lag = self.status, self._scheduler.facts().lag
        if status != "ok":
            return f"captiond is {status.replace('_', ' ')}\n"
        if lag > self._config.max_lag_seconds:
            return f"captiond is overloaded: finals are {lag:.0f} s late\n"
        if len(self._admitted) >= self._config.max_sessions:
            return f"all {self._config.max_sessions} sessions are taken\n"
        return None

    def _admit(self, socket: ServerConnection) -> Response | None:
        """Take up a session, or say why there is none."""
        reason = self._obstacle()
        if reason is not None:
            return _refuse(socket, reason)
        # The task that opens this connection ends with it, also if it never comes to the handler.
        task = asyncio.current_task()
        assert task is not None
        self._admitted.add(socket)
        task.add_done_callback(lambda _: self._admitted.discard(socket))
        return None

    async def _handle(self, socket: ServerConnection) -> None:
        """One connection, from the end of its handshake."""
        assert self._service is not None, "admitted before the engine was warm"
        connection = Connection(socket, secrets.token_hex(4), self._service)
        self._connections.add(connection)
        if self._stop_requested.is_set():  # between its handshake and now
            connection.shut_down()
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._admitted.discard(socket)

    def _health(self, socket: ServerConnection) -> Response:
        facts = self._scheduler.facts()
        status = self.status
        body = {
            "status": status,
            "model": None if self._service is None else self._service.engine.name,
            "sessions": len(self._admitted),
            "waiting": facts.waiting,
            "running": facts.running,
            "lag_seconds": round(facts.lag, 3),
            "finals": facts.finals,
            "partials": facts.partials,
            "superseded": facts.superseded,
            "failed": facts.failed,
        }
        code = HTTPStatus.OK if status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
        response = socket.respond(code, json.dumps(body) + "\n")
        del response.headers["Content-Type"]  # assignment adds to what is there
        response.headers["Content-Type"] = "application/json"
        return response


def _tracked(sockets: set[ServerConnection]) -> type[ServerConnection]:
    """A connection class that keeps its living instances in `sockets`.

    The library knows those after the handshake only, and a silent TCP connection delays the end.
    """

    class Tracked(ServerConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            sockets.add(self)
            _watch_peer(transport.get_extra_info("socket"))

        def connection_lost(self, exc: Exception | None) -> None:
            sockets.discard(self)
            super().connection_lost(exc)

    return Tracked


def _watch_peer(connection: socket.socket) -> None:
    """Have the kernel end the connection when the peer is gone, or reads nothing, for PEER_TIMEOUT.

    Keepalive probes serve silent connections, TCP_USER_TIMEOUT those with data under way, a closed
    window included (tcp(7)).
    """
    probes = 3
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, PEER_TIMEOUT // 2),
        (socket.TCP_KEEPINTVL, PEER_TIMEOUT // 2 // probes),
        (socket.TCP_KEEPCNT, probes),
        (socket.TCP_USER_TIMEOUT, PEER_TIMEOUT * 1000),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _offered(request: Request) -> list[str]:
    lines = request.headers.get_all("Sec-WebSocket-Protocol")
    return [name.strip() for line in lines for name in line.split(",")]


def _select_subprotocol(
    _socket: ServerConnection, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    """A client that offers none is served as captiond.v1; `_answer` has refused all others."""
    return Subprotocol(SUBPROTOCOL) if SUBPROTOCOL in offered else None


def _refuse(socket: ServerConnection, reason: str) -> Response:
    response = socket.respond(HTTPStatus.SERVICE_UNAVAILABLE, reason)
    response.headers["Retry-After"] = RETRY_AFTER
    return response
