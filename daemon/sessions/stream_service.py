"""Wyoming's clients: where they connect, how they are admitted, and how Home Assistant finds the daemon."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from daemon.config import Config
from daemon.net.announcement import announced
from daemon.net.listener import SPARE_CONNECTIONS
from daemon.net.stream_server import StreamServer
from daemon.sessions.admission import Admission, Guest
from daemon.sessions.live_session import Service
from daemon.sessions.registry import SessionRegistry
from daemon.sessions.stream_connection import StreamConnection
from streaming.dialects.dialect import Opening
from streaming.dialects.language_names import NAMES
from streaming.dialects.wyoming import Wyoming
from streaming.protocol import ProtocolError, Start

LABEL = "wyoming"  # in place of a token's, which this protocol cannot send


class StreamService:
    """Serves Wyoming where the configuration says so. service: None while the model loads."""

    def __init__(
        self,
        config: Config,
        admission: Admission,
        registry: SessionRegistry,
        service: Callable[[], Service | None],
    ) -> None:
        self._admission = admission
        self._registry = registry
        self._service = service
        self._name = config.wyoming_name
        self._host = urlsplit(config.wyoming).hostname
        self._connections: set[StreamConnection] = set()
        self._announcement = AsyncExitStack()
        self.server: StreamServer | None = None
        if config.wyoming:
            most = config.max_sessions + SPARE_CONNECTIONS
            self.server = StreamServer(config.wyoming, self._handle, most)

    async def open(self) -> None:
        """Listen. Raises ListenError, and ConfigError where nothing can be announced."""
        if self.server is None:
            return
        await self.server.open()
        if self._name and self._host is not None:
            await self._announcement.enter_async_context(
                announced("_wyoming._tcp", self._name, self._host, self.server.port)
            )

    async def close(self) -> None:
        """Accept no more; what was spoken is still told."""
        if self.server is None:
            return
        self.server.close()
        for connection in list(self._connections):
            connection.shut_down()
        await self._announcement.aclose()

    def drop(self) -> int:
        """End what is left; how many connections that is."""
        return 0 if self.server is None else self.server.drop()

    async def wait_closed(self) -> None:
        """Until the last connection has ended."""
        if self.server is not None:
            await self.server.wait_closed()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        service = self._service()
        if service is None:
            return  # it will try again
        dialect = Wyoming(
            Opening(secrets.token_hex(16)),
            model=service.engine.name,
            languages=languages(service),
        )
        connection = StreamConnection(
            reader,
            writer,
            dialect,
            service,
            self._registry,
            start_refusal=lambda: self._take_place(connection, dialect),
            ended=lambda: self._admission.leave(connection),
        )
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._admission.leave(connection)

    def _take_place(self, connection: StreamConnection, dialect: Wyoming) -> str:
        """Admit a session; or why there is no room."""
        refusal = self._admission.check_capacity(LABEL)
        if refusal is not None:
            return str(refusal.reply.body).strip()
        self._admission.admitted[connection] = Guest(LABEL, dialect)
        return ""


def languages(service: Service) -> tuple[str, ...]:
    """The codes that the model knows."""
    return tuple(code for code in NAMES if _is_known(code, service))


def _is_known(code: str, service: Service) -> bool:
    try:
        service.check(Start(language=code))
    except ProtocolError:
        return False
    return True
