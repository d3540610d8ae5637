"""One client's connection: frames in, messages out, and the limits that hold on the wire.

The session knows what may be asked of it; this waits only for the socket and for the rate limit.

What a client may get wrong, and what follows:

    a start where there is no room (returning ones)   fatal `error`, close 1013
    bad text frame, audio or command out of order,    an `error` message; the session goes on
    unusable sound, a start with wrong values
    the tenth such error                              pending finals, fatal `error`, close 1008
    no start in time                                  fatal `error`, close 1008
    nothing for too long, a session for too long      pending finals, fatal `error`, close 4000, 4001
    malformed frame, text not UTF-8, frame too large  close 1002, 1007 or 1009 by the websocket layer:
                                                      no `error`, and pending finals are lost
    a fault of our own                                fatal `error`, close 1011, and a log entry:
                                                      pending finals are lost
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from daemon.sessions.admission import Guest
from daemon.sessions.close_reasons import NORMAL, SHUTTING_DOWN, CloseReason
from daemon.sessions.frame_handler import FrameHandler
from daemon.sessions.live_session import Service
from daemon.sessions.outbox import Outbox
from daemon.sessions.rate_limit import RateLimit
from daemon.sessions.registry import SessionRegistry
from streaming.dialects.dialect import Action, Told
from streaming.lifecycle import State
from streaming.protocol import SAMPLE_RATE, Final, Heard

logger = logging.getLogger(__name__)

ACKNOWLEDGE_EVERY = 1.0  # seconds between two `heard` messages


class Connection:
    """Serves one websocket from its opening to its end.

    guest: the client that was let in. start_refusal: why it may not start a session now; empty if it may.
    """

    def __init__(
        self,
        socket: ServerConnection,
        guest: Guest,
        service: Service,
        registry: SessionRegistry,
        *,
        start_refusal: Callable[[], str],
    ) -> None:
        self._socket = socket
        self._dialect = guest.dialect
        self._service = service
        self._config = service.config
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox()
        self._close_reason = NORMAL
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._input_over = asyncio.Event()  # what the client still sends is read and thrown away
        self._done = asyncio.Event()  # nothing of this connection is left
        self._acknowledged = self._loop.time()
        self._rate = RateLimit(self._config.max_audio_rate)
        self.handler = FrameHandler(
            self, guest.dialect, guest.label, service, registry, start_refusal, self._excused
        )

    async def run(self) -> None:
        """Serve until the socket is closed. Leaves nothing behind: no task, no work, no timer."""
        writer = asyncio.create_task(self._write())
        # A reader that is paused learns in this way that its client is gone.
        watcher = asyncio.create_task(self._socket.wait_closed())
        watcher.add_done_callback(self._forsake)
        try:
            await self._obey(self.handler.opened())
            async for frame in self._socket:
                self.handler.deadlines.frame()
                if self.handler.listens:
                    await self._obey(self.handler.received(frame))
        except ConnectionClosed:
            pass  # the log tells how
        finally:
            self._input_over.set()
            self._outbox.end()
            self.handler.deadlines.cancel()
            writer.cancel()
            watcher.cancel()
            await asyncio.wait([writer, watcher])
            try:
                self._leave()
            finally:
                self._done.set()

    def shut_down(self) -> None:
        """End the session as if the client had said stop: pending finals are still delivered."""
        if self.handler.session is None or self.handler.session.state is State.OPEN:
            self.handler.shut_down(SHUTTING_DOWN)

    @property
    def gone(self) -> bool:
        """Whether nothing matters any more that the client says or is told."""
        return self._input_over.is_set()

    @property
    def paused(self) -> bool:
        """Whether no frame is read, for too much waits."""
        return not self._may_read.is_set()

    @property
    def queued(self) -> int:
        """How many messages wait to be written."""
        return len(self._outbox)

    async def give_way(self) -> None:
        """Close without a word, for the client has another connection; returns when all is left."""
        self._input_over.set()
        self._socket.transport.abort()
        await self._done.wait()

    def tell(self, message: Told) -> None:
        """Queue `message`."""
        if isinstance(message, Final):
            self.handler.counts.finals.inc()
        if not self._outbox.ended:
            self._outbox.put(message)

    def changed(self) -> None:
        """Pause reading while too much waits for finals or for the client to read.

        The kernel's buffers then fill and the client's sending comes to rest: nothing is dropped.
        """
        most = self._config.max_buffered_seconds * SAMPLE_RATE
        overfull = (
            self.handler.session is not None and self.handler.session.stream.pending_samples > most
        )
        if self.handler.listens and (overfull or self._outbox.full):
            self._may_read.clear()
        else:
            self._may_read.set()

    def over(self, close_reason: CloseReason) -> None:
        """No message follows. Reading goes on, but only for the client's close frame."""
        if not self._outbox.ended:
            self._outbox.end()
            self._close_reason = close_reason
            self._input_over.set()

    async def _obey(self, actions: Iterator[Action]) -> None:
        """Do what the client asks, step by step; in between the other clients get their turn."""
        for action in actions:
            if not isinstance(action, bytes):
                await self.handler.command(action)
                await self._pause()
                continue
            for _ in self.handler.audio(action):
                await self._pause()
            self._acknowledge()
            await self._keep_pace(len(action))

    async def _pause(self) -> None:
        # Frames that have arrived are read without a pause unless one is made.
        await asyncio.sleep(0)
        await self._may_read.wait()

    def _forsake(self, _closed: asyncio.Task[None]) -> None:
        """The client is gone."""
        self._input_over.set()
        self._may_read.set()

    def _excused(self) -> bool:
        """Whether the client may well have sent what has not been read."""
        return self.paused or self._rate.pause(self._loop.time()) > 0

    def _acknowledge(self) -> None:
        now, session = self._loop.time(), self.handler.session
        if session is None or session.key is None or session.state.is_finished:
            return
        if now >= self._acknowledged + ACKNOWLEDGE_EVERY:
            self._acknowledged = now
            self.tell(Heard(bytes=session.acknowledged_bytes))

    async def _keep_pace(self, size: int) -> None:
        """Read no faster than `max_audio_rate`; the client's sending comes to rest by itself."""
        if self.handler.session is None:
            return
        now = self._loop.time()
        self._rate.take(size / self.handler.session.bytes_per_second, now)
        if pause := self._rate.pause(now):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._input_over.wait(), pause)

    async def _write(self) -> None:
        """The only writer of messages; one slow client holds up nobody but itself."""
        try:
            while (message := await self._outbox.get()) is not None:
                for frame in self._dialect.encode(message):
                    await self._socket.send(frame)
                self.changed()
            code, reason = self._close_reason.code, self._close_reason.reason
            await self._socket.close(*self._dialect.close(code, reason))
        except ConnectionClosed:
            pass  # the reader sees it, too
        except Exception:
            logger.exception("writing to a client failed")
            self._socket.transport.abort()

    def _leave(self) -> None:
        """Say how it ended, and leave the session: to nobody, or to the client that was lost."""
        self._service.metrics.ended.labels(str(self._socket.close_code)).inc()
        how, lost = ending(self._socket)
        if self.handler.session is None:
            logger.info("a connection ended before it began a session: %s", how)
        else:
            self._registry.leave(self.handler.session, lost=lost, how=how)


def ending(socket: ServerConnection) -> tuple[str, bool]:
    """How a connection has ended, in words; and whether it was lost before all was told."""
    said, ours = socket.protocol.close_rcvd, socket.protocol.close_sent
    deliberate = ours is not None and ours.code != NORMAL.code
    if socket.protocol.close_rcvd_then_sent:
        how = f"closed by the client before its end (code {socket.close_code})"
    elif ours is not None and deliberate:
        how = f"ended by the daemon (code {ours.code}: {ours.reason})"
    else:
        how = "complete" if said is not None else "its client vanished"
    return how, said is None and not deliberate
