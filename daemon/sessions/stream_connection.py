"""One client's connection by a byte stream, over one session after another.

The same sessions and the same handler of frames as a websocket's (daemon/sessions/connection.py). Nothing is
read while the finals of an audio that is over are pending: the client waits for them.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from daemon.sessions.close_reasons import NORMAL, SHUTTING_DOWN, CloseReason
from daemon.sessions.frame_handler import FrameHandler
from daemon.sessions.live_session import Service
from daemon.sessions.registry import SessionRegistry
from streaming.dialects.dialect import Action, Dialect, Told
from streaming.lifecycle import State
from streaming.protocol import SAMPLE_RATE, Final, Stop

READ = 2**16  # bytes
LINGER = 2.0  # seconds that a client has to stop talking, and to read what it did wrong

logger = logging.getLogger(__name__)


class StreamConnection:
    """Serves one stream from its opening to its end.

    dialect: what is spoken. start_refusal: why no session may start now; empty if it may. began, ended: told of
    each session.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        dialect: Dialect,
        service: Service,
        registry: SessionRegistry,
        *,
        start_refusal: Callable[[], str],
        ended: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._dialect = dialect
        self._service = service
        self._registry = registry
        self._start_refusal = start_refusal
        self._ended = ended
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._over = asyncio.Event()  # the session's last message has been told
        self._close_reason = NORMAL
        self._gone = False
        self.handler = self._fresh()

    async def run(self) -> None:
        """Serve until the client or the daemon ends it."""
        try:
            while self._close_reason is NORMAL and (data := await self._read()):
                for action in self.handler.received(data):
                    await self._obey(action)
                await self._writer.drain()
            if self._close_reason is not NORMAL and self.handler.session is not None:
                await self._over.wait()  # what was spoken is told
        finally:
            self._gone = True
            self.handler.deadlines.cancel()
            self._leave(lost=True)
        if self._close_reason not in (NORMAL, SHUTTING_DOWN):
            await self._linger()

    def shut_down(self) -> None:
        """Pending finals are still told; then the connection ends."""
        if self.handler.session is None or self.handler.session.state is State.OPEN:
            self.handler.shut_down(SHUTTING_DOWN)
        self._close_reason = SHUTTING_DOWN

    @property
    def gone(self) -> bool:
        """Whether nothing matters any more that the client says or is told."""
        return self._gone

    async def give_way(self) -> None:
        """Never asked for: sessions of streams cannot be resumed."""
        raise AssertionError("a stream's session was resumed")

    def tell(self, message: Told) -> None:
        """Send `message`."""
        if self._gone:
            return
        if isinstance(message, Final):
            self.handler.counts.finals.inc()
        for frame in self._dialect.encode(message):
            self._writer.write(frame.encode())

    def changed(self) -> None:
        """Pause reading while too much waits for finals."""
        session = self.handler.session
        most = self._service.config.max_buffered_seconds * SAMPLE_RATE
        if session is not None and session.stream.pending_samples > most and self.handler.listens:
            self._may_read.clear()
        else:
            self._may_read.set()

    def over(self, close_reason: CloseReason) -> None:
        """No message of this session follows."""
        if close_reason is not NORMAL:
            self._close_reason = close_reason
        self._over.set()
        self._may_read.set()

    async def _linger(self) -> None:
        """Pass over what still comes: closing now would drop what the client has not read (RFC 9112, 9.6)."""
        with suppress(TimeoutError, OSError):
            self._writer.write_eof()
            async with asyncio.timeout(LINGER):
                while await self._reader.read(READ):
                    pass

    async def _read(self) -> bytes:
        """What the client sends next; nothing once the daemon ends the connection."""
        reading = asyncio.ensure_future(self._reader.read(READ))
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait([reading, over], return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() and not self._over.is_set() else b""
        finally:
            reading.cancel()
            over.cancel()

    async def _obey(self, action: Action) -> None:
        self.handler.deadlines.frame()
        if isinstance(action, bytes):
            for _ in self.handler.audio(action):
                await asyncio.sleep(0)
                await self._may_read.wait()
            return
        await self.handler.command(action)
        if isinstance(action, Stop) and self.handler.session is not None:
            await self._over.wait()
            self._leave(lost=False)
            if self._close_reason is NORMAL:
                self._over.clear()
                self.handler.deadlines.cancel()
                self.handler = self._fresh()

    def _fresh(self) -> FrameHandler:
        """A handler for the next session."""
        return FrameHandler(
            self,
            self._dialect,
            self._dialect.name,
            self._service,
            self._registry,
            self._start_refusal,
            lambda: not self._may_read.is_set(),
        )

    def _leave(self, *, lost: bool) -> None:
        session, self.handler.session = self.handler.session, None
        if session is not None:
            self._ended()
            how = "its client vanished" if lost and not session.state.is_finished else "complete"
            self._registry.leave(session, lost=False, how=how)
