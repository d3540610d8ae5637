"""The daemon: how it starts, reloads and stops, and who gets a session.

What happens inside a connection is daemon/sessions/connection.py's; nothing here reads a frame.

Life cycle: `start` binds the port and begins to load the model; `run` serves until `stop` and
leaves nothing behind. While the model loads websockets are refused by HTTP 503; on a socket that was
handed over they wait, for there the service manager has promised them an answer.
"""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit
from weakref import WeakSet

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from daemon.config import Config, ConfigError, reloaded
from daemon.monitoring.health import Health, Status
from daemon.monitoring.metrics import CONTENT_TYPE, Metrics
from daemon.net.auth import Tokens
from daemon.net.http import Reply, Router, path, wants_websocket
from daemon.net.listener import SPARE_CONNECTIONS, Listener
from daemon.net.static_files import Page
from daemon.net.tls import Tls
from daemon.recognition.scheduler import Engine, Scheduler
from daemon.sessions.admission import Refusal, authenticate, check_capacity, unauthorised
from daemon.sessions.connection import Connection
from daemon.sessions.live_session import Service
from daemon.sessions.registry import SessionRegistry
from daemon.sessions.transcripts import Transcripts
from streaming.protocol import SUBPROTOCOL
from streaming.settings import Settings
from streaming.silero import DetectorError
from streaming.vad import detector

logger = logging.getLogger(__name__)

METHODS = ("GET", "HEAD")
WEBSOCKET_PATHS = ("/", "/v1")
LAST_ROUND = 10.0  # seconds granted to the engine's last round


class Daemon:
    """The captioning service on one port, or on the sockets `inherited`.

    load: makes the engine; called in the scheduler's thread. Raises ConfigError for tokens or a
    certificate that cannot be used.
    """

    def __init__(
        self,
        config: Config,
        load: Callable[[], Engine],
        *,
        inherited: Sequence[socket.socket] = (),
    ) -> None:
        self._config = config
        self._tokens = Tokens.read(config.tokens_file)
        self._tls = Tls.of(config)
        self._inherited = inherited
        self._scheduler = Scheduler(load, asyncio.get_running_loop())
        self.metrics = Metrics(lambda: self.health)
        self._transcripts = self._write_transcripts()
        self._page = Page()
        self._service: Service | None = None  # once the engine is warm
        self._registry = SessionRegistry()
        self._admitted: dict[ServerConnection, str] = {}  # those that take up a session: label
        # Those of them that were let in, full or not, to resume a session.
        self._returning: WeakSet[ServerConnection] = WeakSet()
        self._connections: set[Connection] = set()
        self._stop_requested = asyncio.Event()
        self._stop_insisted = asyncio.Event()
        self._began = time.monotonic()
        self._warm: asyncio.Future[Engine]
        self._listener = Listener(
            self._handle, self._answer, config, self._tls.context if self._tls else None
        )
        self._router = Router(
            {
                "/livez": lambda _: self.health.livez(),
                "/readyz": lambda _: self.health.readyz(),
                "/healthz": self._known_only(lambda health: health.healthz(self.metrics.counts())),
                "/metrics": self._known_only(self._metrics_text),
            }
            | dict.fromkeys(WEBSOCKET_PATHS, self._point_out)
        )
        self.ready = asyncio.Event()
        """Set when clients are welcome."""
        self.abandoned = False
        """Whether `run` has left the engine's thread behind, at work."""

    @property
    def port(self) -> int:
        """The port bound by `start`, also where the configuration says 0."""
        return self._listener.port

    async def start(self) -> None:
        """Bind the port and begin to load the model. Raises ListenError."""
        await self._listener.open(self._inherited)
        self._warm = asyncio.wrap_future(self._scheduler.start())

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
            self._stop_requested.set()  # also where the engine cannot be had: handshakes may wait for it
            stop.cancel()
            self._warm.cancel()
            await self._drain()
            # An engine that is still loading cannot be interrupted; its thread ends with the process.
            patience = LAST_ROUND if self._service is not None else 0.0
            self.abandoned = not await asyncio.to_thread(self._scheduler.stop, patience)
            if self.abandoned and patience:
                logger.error("the engine hangs in a round and is abandoned")
            if self._transcripts is not None:
                await asyncio.to_thread(self._transcripts.stop)

    def stop(self) -> None:
        """Ask `run` to finish: pending finals are still delivered. Asked twice, it drops them."""
        if self._stop_requested.is_set():
            if self._connections:
                logger.warning("asked to stop again: pending finals are dropped")
            self._stop_insisted.set()
        else:
            logger.info(
                "stopping: %d sessions get up to %g s for their finals",
                len(self._connections),
                self._config.shutdown_seconds,
            )
        self._stop_requested.set()

    def reload(self, config: Config) -> tuple[list[str], list[str]]:
        """Take over what can change in a daemon that runs; sessions that have begun keep theirs.

        Tokens and certificate are read anew in any case. Returns the keys that changed, and those
        that wait for a restart. Raises ConfigError, and nothing has changed.
        """
        config, changed, waiting = reloaded(self._config, config)
        tokens = Tokens.read(config.tokens_file)
        try:
            detector(config.vad, config.vad_mode)
        except DetectorError as error:
            raise ConfigError(str(error)) from None
        if self._tls is not None:
            self._tls.reload()
        self._config, self._tokens = config, tokens
        self._listener.most = config.max_sessions + SPARE_CONNECTIONS
        if self._transcripts is not None:
            self._transcripts.limit(config.transcripts_file_mb, config.transcripts_keep_mb)
        if self._service is not None:
            self._welcome(self._service.engine)
        return changed, waiting

    @property
    def status(self) -> Status:
        """The daemon's state in a word."""
        if self._stop_requested.is_set():
            return "stopping"
        if self._service is None:
            return "warming_up"
        return (
            "stalled" if self._scheduler.stats().idle > self._config.stalled_after_seconds else "ok"
        )

    @property
    def health(self) -> Health:
        """How the daemon is, now."""
        stats = self._scheduler.stats()
        return Health(
            status=self.status,
            stats=stats,
            sessions=len(self._admitted),
            parked=self._registry.waiting,
            finishing=self._registry.finishing,
            model=None if self._service is None else self._service.engine.name,
            drafter=None if self._service is None else self._service.engine.drafter,
            uptime=time.monotonic() - self._began,
            # Whoever has left what is still to be decoded has not left yet.
            full=len(self._admitted) + self._registry.finishing >= self._config.max_sessions,
            late=stats.wait > self._config.max_lag_seconds,
        )

    @property
    def address(self) -> str:
        """The URL for clients on this machine."""
        return f"{'ws' if self._tls is None else 'wss'}://{self._listener.address}"

    def _welcome(self, engine: Engine) -> None:
        """Serve new sessions by the configuration in force."""
        config = self._config
        settings = Settings(
            vad=config.vad,
            vad_mode=config.vad_mode,
            minimum_speech_ms=config.minimum_speech_ms,
            endpoint_silence_ms=config.endpoint_silence_ms,
            partial_interval_ms=config.partial_interval_ms,
        )
        self._service = Service(
            config, settings, self._scheduler, engine, self.metrics, self._transcripts
        )
        self.ready.set()

    async def _drain(self) -> None:
        """Refuse the new, finish the old, then drop what is left."""
        self._listener.close(keep=set(self._admitted))
        for connection in list(self._connections):
            connection.shut_down()
        closed = asyncio.create_task(self._settled())
        insisted = asyncio.create_task(self._stop_insisted.wait())
        await asyncio.wait(
            {closed, insisted},
            timeout=self._config.shutdown_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        insisted.cancel()
        late = set(self._listener.sockets)
        if late:
            logger.warning("%d connections are dropped before their end", len(late))
        self._listener.drop(late)
        await self._listener.wait_closed()
        self._registry.abandon()
        await closed

    async def _settled(self) -> None:
        """Until every client is gone, and what its transcript awaits is written."""
        await self._listener.wait_closed()
        await self._registry.clear()

    async def _answer(self, socket: ServerConnection, request: Request) -> Response | None:
        """Reply to a request before it becomes a websocket; None lets it become one."""
        if request.method not in METHODS:
            text = f"{request.method} is not served here: use {' or '.join(METHODS)}\n"
            allow = {"Allow": ", ".join(METHODS)}
            return Reply(HTTPStatus.METHOD_NOT_ALLOWED, text, headers=allow).response(socket)
        response = await self._respond(socket, request)
        if response is not None and request.method == "HEAD":
            response.body = b""  # its length stays told (RFC 9110, 9.3.2)
        return response

    async def _respond(self, socket: ServerConnection, request: Request) -> Response | None:
        if not wants_websocket(request):
            page = self._page.answer(path(request), request)
            return page or self._router.answer(request).response(socket)
        if path(request) not in WEBSOCKET_PATHS:
            return self._router.answer(request).response(socket)
        refusal = await self._admit(socket, request)
        if refusal is None:
            return None
        self.metrics.refused.labels(refusal.reason).inc()
        return refusal.reply.response(socket)

    async def _admit(self, socket: ServerConnection, request: Request) -> Refusal | None:
        """Take up a session, or say why there is none."""
        guest = authenticate(request.headers, self._tokens, self._config.allowed_origins)
        if isinstance(guest, Refusal):
            return guest
        if self._inherited:
            await self._warmth()
        returning = self._returns(request, guest)
        refusal = self._check_capacity(guest, returning=returning)
        if refusal is not None:
            return refusal
        # The task that opens this connection ends with it, also if it never comes to the handler.
        task = asyncio.current_task()
        assert task is not None
        self._admitted[socket] = guest
        if returning:
            self._returning.add(socket)
        task.add_done_callback(lambda _: self._admitted.pop(socket, None))
        return None

    def _check_capacity(self, label: str, *, returning: bool = False) -> Refusal | None:
        """Why there is no room now for a client whose token is called `label`, if so."""
        taken = Counter(self._admitted.values())[label]
        return check_capacity(self.health, self._config, of_token=taken, returning=returning)

    def _returns(self, request: Request, label: str) -> bool:
        """Whether the client says that it comes back to a session of its own."""
        names = parse_qs(urlsplit(request.path).query).get("resume", [])
        return any(self._registry.holds(name, label) for name in names)

    def _no_room(self, socket: ServerConnection) -> str:
        """Why a connection may not start a session; empty if it may.

        One that was let in to resume has not been asked: there may be no room for another session.
        """
        if socket not in self._returning:
            return ""
        label = self._admitted.pop(socket)  # the room is for itself
        refusal = self._check_capacity(label)
        self._admitted[socket] = label
        if refusal is None:
            self._returning.discard(socket)
            return ""
        self.metrics.refused.labels(refusal.reason).inc()
        return str(refusal.reply.body).strip()

    async def _warmth(self) -> None:
        """Until the engine is warm, or will not be."""
        ready = asyncio.create_task(self.ready.wait())
        stop = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait({ready, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            stop.cancel()

    async def _handle(self, socket: ServerConnection) -> None:
        """One connection, from the end of its handshake."""
        assert self._service is not None, "admitted before the engine was warm"
        connection = Connection(
            socket,
            self._admitted[socket],
            self._service,
            self._registry,
            no_room=lambda: self._no_room(socket),
        )
        self._connections.add(connection)
        if self._stop_requested.is_set():  # between its handshake and now
            connection.shut_down()
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._admitted.pop(socket, None)

    def _write_transcripts(self) -> Transcripts | None:
        config = self._config
        if not config.transcripts_dir:
            return None
        return Transcripts(
            config.transcripts_dir,
            config.transcripts_file_mb,
            config.transcripts_keep_mb,
            failed=self.metrics.transcript_errors.inc,
        )

    def _known_only(self, answer: Callable[[Health], Reply]) -> Callable[[Request], Reply]:
        """`answer` for those with a token, where there are tokens."""

        def guarded(request: Request) -> Reply:
            known = self._tokens.label(request.headers) is not None
            return answer(self.health) if known else unauthorised()

        return guarded

    def _point_out(self, request: Request) -> Reply:
        """Tell a plain request that a websocket is wanted; or what refuses one now: a browser hears
        nothing of why its websocket failed, so the page asks in this way.
        """
        guest = authenticate(request.headers, self._tokens, self._config.allowed_origins)
        if isinstance(guest, Refusal):
            return guest.reply
        refusal = self._check_capacity(guest)
        if refusal is not None:
            return refusal.reply
        text = f"this is captiond: connect by websocket, subprotocol {SUBPROTOCOL}\n"
        return Reply(HTTPStatus.UPGRADE_REQUIRED, text, headers={"Upgrade": "websocket"})

    def _metrics_text(self, _health: Health) -> Reply:
        return Reply(HTTPStatus.OK, self.metrics.text(), CONTENT_TYPE)
