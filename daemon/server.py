"""The daemon: how it starts, reloads and stops.

What happens inside a connection is daemon/sessions/connection.py's, and what is answered over HTTP
daemon/endpoints.py's; nothing here reads a frame.

Life cycle: `start` binds the port and begins to load the model; `run` serves until `stop` and
leaves nothing behind. While the model loads websockets are refused by HTTP 503; on a socket that was
handed over they wait, for there the service manager has promised them an answer.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from websockets.asyncio.server import ServerConnection

from daemon.config import Config, ConfigError, reloaded
from daemon.endpoints import Endpoints
from daemon.entrances import Entrances
from daemon.monitoring.health import Health, Status
from daemon.monitoring.metrics import Metrics
from daemon.net.auth import Tokens
from daemon.net.listener import SPARE_CONNECTIONS, Listener
from daemon.net.tls import Tls
from daemon.recognition.scheduler import Engine, Scheduler
from daemon.sessions.admission import Admission
from daemon.sessions.connection import Connection
from daemon.sessions.live_session import Service
from daemon.sessions.registry import SessionRegistry
from daemon.sessions.stream_service import StreamService
from daemon.sessions.transcripts import Transcripts
from streaming.silero import DetectorError
from streaming.vad import detector

logger = logging.getLogger(__name__)

LAST_ROUND = 10.0  # seconds granted to the engine's last round


def transcripts_of(config: Config, metrics: Metrics) -> Transcripts | None:
    """The folder that `config` names, if any. Raises ConfigError as `Transcripts` does."""
    if not config.transcripts_dir:
        return None
    return Transcripts(
        config.transcripts_dir,
        config.transcripts_file_mb,
        config.transcripts_keep_mb,
        failed=metrics.transcript_errors.inc,
    )


def check_detector(config: Config) -> None:
    """Raises ConfigError where the voice detector that `config` names cannot be had."""
    try:
        detector(config.vad, config.vad_mode)
    except DetectorError as error:
        raise ConfigError(str(error)) from None


async def either(*coroutines: Coroutine[Any, Any, Any], seconds: float | None = None) -> None:
    """Until one of them is done, or so many seconds have passed; the others are cancelled."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


class Daemon:
    """The captioning service on one port, or on the sockets `inherited`.

    load: makes the engine; called in the scheduler's thread. Raises ConfigError for tokens or a
    certificate that cannot be used.
    """

    def __init__(
        self, config: Config, load: Callable[[], Engine], *, inherited: Sequence[socket.socket] = ()
    ) -> None:
        self.config = config
        self._tls = Tls.of(config)
        self._inherited = inherited
        self.scheduler = Scheduler(load, asyncio.get_running_loop())
        self.metrics = Metrics(lambda: self.health)
        self.transcripts = transcripts_of(config, self.metrics)
        self._service: Service | None = None  # once the engine is warm
        self.sessions = SessionRegistry()
        tokens = Tokens.read(config.tokens_file)
        self.admission = Admission(
            lambda: self.config, tokens, self.sessions, self.metrics, lambda: self.health
        )
        self.connections: set[Connection] = set()
        self._stop_requested = asyncio.Event()
        self._stop_insisted = asyncio.Event()
        self._began = time.monotonic()
        self._warm: asyncio.Future[Engine] | None = None  # once started
        self.endpoints = Endpoints(
            self.admission,
            self.metrics,
            lambda: self.health,
            lambda: self._service,
            self._until_warm,
        )
        self.listener = Listener(
            self._handle,
            self.endpoints.answer,
            self.endpoints.take,
            config,
            self._tls.context if self._tls else None,
        )
        self.streams = StreamService(config, self.admission, self.sessions, lambda: self._service)
        self._entrances = Entrances(self.listener, self.streams)
        self.ready = asyncio.Event()  # set when clients are welcome
        self.abandoned = False  # whether `run` has left the engine's thread behind, at work

    @property
    def port(self) -> int:
        """The port bound by `start`, also where the configuration says 0."""
        return self.listener.port

    async def start(self) -> None:
        """Bind the ports and begin to load the model. Raises ListenError, and ConfigError as Wyoming does."""
        await self._entrances.open(self._inherited)
        self._warm = asyncio.wrap_future(self.scheduler.start())

    async def run(self) -> None:
        """Serve until `stop`, once started. Raises what loading the engine raises."""
        assert self._warm is not None, "start comes first"
        try:
            await either(asyncio.wait({self._warm}), self._stop_requested.wait())
            if self._warm.done():
                self._accept_sessions(self._warm.result())
                await self._stop_requested.wait()
        finally:
            self._stop_requested.set()  # also where the engine cannot be had: handshakes may wait for it
            self._warm.cancel()
            await self._shut_down()

    def stop(self) -> None:
        """Ask `run` to finish: pending finals are still delivered. Asked twice, it drops them."""
        if self._stop_requested.is_set():
            if self.connections:
                logger.warning("asked to stop again: pending finals are dropped")
            self._stop_insisted.set()
        else:
            count, patience = len(self.connections), self.config.shutdown_seconds
            logger.info("stopping: %d sessions get up to %g s for their finals", count, patience)
        self._stop_requested.set()

    def reload(self, config: Config) -> tuple[list[str], list[str]]:
        """Take over what can change in a daemon that runs; sessions that have begun keep theirs.

        Tokens and certificate are read anew in any case. Returns the keys that changed, and those
        that wait for a restart. Raises ConfigError, and nothing has changed.
        """
        config, changed, waiting = reloaded(self.config, config)
        tokens = Tokens.read(config.tokens_file)
        check_detector(config)
        if self._tls is not None:
            self._tls.reload()
        self.config = config
        self.admission.tokens = tokens
        self.listener.most = config.max_sessions + SPARE_CONNECTIONS
        if self.transcripts is not None:
            self.transcripts.limit(config.transcripts_file_mb, config.transcripts_keep_mb)
        if self._service is not None:
            self._accept_sessions(self._service.engine)
        return changed, waiting

    @property
    def status(self) -> Status:
        """The daemon's state in a word."""
        if self._stop_requested.is_set():
            return "stopping"
        if self._service is None:
            return "warming_up"
        stalled = self.scheduler.stats().idle > self.config.stalled_after_seconds
        return "stalled" if stalled else "ok"

    @property
    def health(self) -> Health:
        """How the daemon is, now."""
        stats = self.scheduler.stats()
        return Health(
            status=self.status,
            stats=stats,
            sessions=self.admission.taken,
            parked=self.sessions.waiting,
            finishing=self.sessions.finishing,
            model=None if self._service is None else self._service.engine.name,
            drafter=None if self._service is None else self._service.engine.drafter,
            uptime=time.monotonic() - self._began,
            full=self.admission.full,
            late=stats.wait > self.config.max_lag_seconds,
        )

    @property
    def address(self) -> str:
        """The URL for clients on this machine."""
        return f"{'ws' if self._tls is None else 'wss'}://{self.listener.address}"

    def _accept_sessions(self, engine: Engine) -> None:
        """Serve new sessions by the configuration in force."""
        config = self.config
        self._service = Service(
            config,
            config.streaming_settings,
            self.scheduler,
            engine,
            self.metrics,
            self.transcripts,
        )
        self.ready.set()

    async def _shut_down(self) -> None:
        """End the sessions, then the engine, then the transcripts."""
        await self._drain()
        # An engine that is still loading cannot be interrupted; its thread ends with the process.
        patience = LAST_ROUND if self._service is not None else 0.0
        self.abandoned = not await asyncio.to_thread(self.scheduler.stop, patience)
        if self.abandoned and patience:
            logger.error("the engine hangs in a round and is abandoned")
        if self.transcripts is not None:
            await asyncio.to_thread(self.transcripts.stop)

    async def _drain(self) -> None:
        """Refuse the new, finish the old, then drop what is left."""
        await self._entrances.close(keep=self.admission.admitted)
        for connection in list(self.connections):
            connection.shut_down()
        closed = asyncio.create_task(self._all_closed())
        patience = self.config.shutdown_seconds
        await either(asyncio.wait({closed}), self._stop_insisted.wait(), seconds=patience)
        late = self._entrances.drop()
        if late:
            logger.warning("%d connections are dropped before their end", late)
        await self.listener.wait_closed()
        self.sessions.abandon()
        await closed

    async def _all_closed(self) -> None:
        """Until every client is gone, and what its transcript awaits is written."""
        await self._entrances.wait_closed()
        await self.sessions.clear()

    async def _until_warm(self) -> None:
        """Until the engine is warm, or will not be: on sockets that were handed over."""
        if self._inherited:
            await either(self.ready.wait(), self._stop_requested.wait())

    async def _handle(self, socket: ServerConnection) -> None:
        """One connection, from the end of its handshake."""
        assert self._service is not None, "admitted before the engine was warm"
        connection = Connection(
            socket,
            self.admission.admitted[socket],
            self._service,
            self.sessions,
            start_refusal=lambda: self.admission.start_refusal(socket),
        )
        self.connections.add(connection)
        if self._stop_requested.is_set():  # between its handshake and now
            connection.shut_down()
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            self.admission.leave(socket)
