"""One client's connection: frames in, messages out, and the limits that hold on the wire.

What the frames ask of the session is its seat's business; nothing waits for anything but the socket,
and for time where a client sends faster than it may.

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
from functools import partial
from typing import assert_never

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from daemon.sessions.close_reasons import (
    IDLE,
    NORMAL,
    OVERDUE,
    SHUTTING_DOWN,
    TIME_LIMIT,
    CloseReason,
    busy,
    too_many_errors,
)
from daemon.sessions.live_session import LiveSession, Service
from daemon.sessions.outbox import Outbox
from daemon.sessions.registry import SessionRegistry
from streaming.protocol import (
    Error,
    Flush,
    Heard,
    ProtocolError,
    Resume,
    ServerMessage,
    Start,
    Stop,
    decode_client,
    encode,
)

logger = logging.getLogger(__name__)

MOST_ERRORS = 10  # a client that gets this many things wrong will not get better
ACKNOWLEDGE_EVERY = 1.0  # seconds between two `heard` messages
BURST = 10.0  # seconds of audio that may come at once where the rate of audio is limited


class Connection:
    """Serves one websocket from its opening to its end.

    label: of the client's token. no_room: why it may not start a session now; empty if it may.
    """

    def __init__(
        self,
        socket: ServerConnection,
        label: str,
        service: Service,
        registry: SessionRegistry,
        *,
        no_room: Callable[[], str],
    ) -> None:
        self._socket = socket
        self._label = label
        self._service = service
        self._config = service.config
        self._registry = registry
        self._no_room = no_room
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox()
        self._live_session: LiveSession | None = None
        self._deaf = False  # whatever the client still says is ignored
        self._ended = False  # the last message is queued; nothing may follow
        self._close_reason = NORMAL
        self._errors = 0
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._hurry = asyncio.Event()  # the socket is closed, or the last message queued
        self._done = asyncio.Event()  # and nothing of this connection is left
        self._last_frame = self._acknowledged = self._loop.time()
        self._credit = float("-inf")  # the time by which what came has been paid for
        self._timers: dict[str, asyncio.TimerHandle] = {}  # that are running, by purpose

    async def run(self) -> None:
        """Serve until the socket is closed. Leaves nothing behind: no task, no work, no timer."""
        self._arm("start", self._config.start_timeout_seconds, partial(self._wind_down, OVERDUE))
        writer = asyncio.create_task(self._write())
        # A reader that is paused learns in this way that its client is gone.
        watcher = asyncio.create_task(self._socket.wait_closed())
        watcher.add_done_callback(self._forsake)
        try:
            async for message in self._socket:
                await self._take(message)
        except ConnectionClosed:
            pass  # the log tells how
        finally:
            self._ended = True
            for timer in self._timers.values():
                timer.cancel()
            writer.cancel()
            watcher.cancel()
            await asyncio.wait([writer, watcher])
            self._leave()
            self._done.set()

    def shut_down(self) -> None:
        """End the session as if the client had said stop: pending finals are still delivered."""
        if self._live_session is None or not self._live_session.stopped:
            self._wind_down(SHUTTING_DOWN)

    @property
    def gone(self) -> bool:
        """Whether it can be told nothing any more. For the seats."""
        return self._ended

    async def give_way(self) -> None:
        """Close without a word, for the client has another connection; returns when all is left."""
        self._deaf = True
        self._socket.transport.abort()
        await self._done.wait()

    def tell(self, message: ServerMessage) -> None:
        """Queue `message`. For the seat."""
        if not self._ended:
            self._outbox.put(message)

    def changed(self) -> None:
        """Pause reading while too much waits for finals or for the client to read. For the seat.

        The kernel's buffers then fill and the client's sending comes to rest: nothing is dropped.
        """
        waits = self._outbox.full or (
            self._live_session is not None and self._live_session.overfull
        )
        if waits and self._listens:
            self._may_read.clear()
        else:
            self._may_read.set()

    def over(self, close_reason: CloseReason) -> None:
        """No message follows. Reading goes on, but only for the client's close frame. For the seat."""
        if not self._ended:
            self._ended = True
            self._close_reason = close_reason
            self._outbox.end()
            self._hurry.set()

    @property
    def _listens(self) -> bool:
        """Whether what the client says still matters."""
        return not (self._deaf or self._ended)

    async def _take(self, frame: str | bytes) -> None:
        """One frame from the client, step by step; in between the other clients get their turn."""
        self._last_frame = self._loop.time()
        if not self._listens:
            return
        if isinstance(frame, str):
            await self._obey(frame)
            await self._pause()
            return
        for step in self._steps(frame):
            self._inlet(step)
            await self._pause()
        self._acknowledge()
        await self._keep_pace(len(frame))

    async def _pause(self) -> None:
        # Frames that have arrived are read without a pause unless one is made.
        await asyncio.sleep(0)
        await self._may_read.wait()

    def _steps(self, audio: bytes) -> Iterator[Callable[[], None]]:
        """How sound is heard. What was refused asks for no second step.

        A frame that has been taken is heard to its end, whoever has gone: it counts as received.
        """
        yield lambda: self._started().feed(audio)
        while (
            self._live_session is not None
            and self._live_session.unprocessed
            and not self._live_session.ended
        ):
            yield self._live_session.process

    def _forsake(self, _closed: asyncio.Task[None]) -> None:
        """The client is gone: whatever it has still sent is read and thrown away."""
        self._deaf = True
        self._hurry.set()
        self._may_read.set()

    def _inlet(self, step: Callable[[], None]) -> None:
        """Take a step, and tell the client what it got wrong."""
        try:
            step()
        except ProtocolError as error:
            self._refuse(error)
        self.changed()

    def _refuse(self, error: ProtocolError) -> None:
        self.tell(Error(code=error.code, message=str(error), fatal=False))
        self._errors += 1
        if self._errors >= MOST_ERRORS:
            self._wind_down(too_many_errors(self._errors))

    async def _obey(self, text: str) -> None:
        try:
            match message := decode_client(text):
                case Start():
                    self._expect_not_started()
                    self._start(message)
                case Resume():
                    self._expect_not_started()
                    await self._resume(message)
                case Flush():
                    self._started().flush()
                case Stop():
                    self._started().stop()
                case _:
                    assert_never(message)
        except ProtocolError as error:
            self._refuse(error)
        self.changed()

    def _start(self, start: Start) -> None:
        """Raises ProtocolError as `Seats.open` does."""
        if reason := self._no_room():
            self._wind_down(busy(reason))
            return
        self._attach(self._registry.open(start, self._label, self._service, self))

    async def _resume(self, wish: Resume) -> None:
        """Raises ProtocolError as `Seats.resume` does."""
        live_session = await self._registry.resume(wish, self._label, self)
        self._attach(live_session)
        self._deaf = self._deaf or live_session.winding_down

    def _expect_not_started(self) -> None:
        if self._live_session is not None:
            raise ProtocolError(
                "bad_order", "this session has started; open another connection for another one"
            )

    def _started(self) -> LiveSession:
        if self._live_session is None:
            raise ProtocolError("bad_order", 'the first message must be {"type": "start"}')
        return self._live_session

    def _attach(self, live_session: LiveSession) -> None:
        self._live_session = live_session
        self._timers.pop("start").cancel()
        if self._config.idle_seconds:
            self._arm("idle", self._config.idle_seconds, self._look_for_idleness)
        if self._config.max_session_seconds:
            left = live_session.opened + self._config.max_session_seconds - self._loop.time()
            self._arm("limit", left, self._end_in_time)

    def _arm(self, purpose: str, seconds: float, act: Callable[[], None]) -> None:
        self._timers[purpose] = self._loop.call_later(seconds, act)

    def _end_in_time(self) -> None:
        """Who has said stop is ending already."""
        if self._live_session is not None and not self._live_session.stopped:
            self._wind_down(TIME_LIMIT)

    def _look_for_idleness(self) -> None:
        """Whose audio is over waits for finals, and who is paused cannot be heard: neither is idle."""
        assert self._live_session is not None
        now = self._loop.time()
        if self._live_session.stopped or not self._may_read.is_set() or self._credit > now:
            self._last_frame = now
        left = self._last_frame + self._config.idle_seconds - now
        if left > 0:
            self._arm("idle", left, self._look_for_idleness)
        else:
            self._wind_down(IDLE)

    def _acknowledge(self) -> None:
        now, live_session = self._loop.time(), self._live_session
        if (
            live_session is None
            or live_session.key is None
            or live_session.ended
            or now < self._acknowledged + ACKNOWLEDGE_EVERY
        ):
            return
        self._acknowledged = now
        self.tell(Heard(bytes=live_session.acknowledged_bytes))

    async def _keep_pace(self, size: int) -> None:
        """Read no faster than `max_audio_rate`; the client's sending comes to rest by itself."""
        rate = self._config.max_audio_rate
        if not rate or self._live_session is None:
            return
        now = self._loop.time()
        self._credit = max(self._credit, now - BURST / rate)
        self._credit += size / self._live_session.bytes_per_second / rate
        if self._credit > now:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._credit - now)

    def _wind_down(self, close_reason: CloseReason) -> None:
        """Listen no more, finish what was spoken, then close as `farewell` says."""
        if not self._listens:
            return
        self._deaf = True
        if self._live_session is not None:
            self._live_session.wind_down(close_reason)
            return
        if close_reason.error is not None:
            self.tell(close_reason.error)
        self.over(close_reason)

    async def _write(self) -> None:
        """The only writer of messages; one slow client holds up nobody but itself."""
        try:
            while (message := await self._outbox.get()) is not None:
                await self._socket.send(encode(message))
                self.changed()
            await self._socket.close(self._close_reason.code, self._close_reason.reason)
        except ConnectionClosed:
            pass  # the reader sees it, too
        except Exception:
            logger.exception("writing to a client failed")
            self._socket.transport.abort()

    def _leave(self) -> None:
        """Say how it ended, and leave the seat: to nobody, or to the client that was lost."""
        protocol = self._socket.protocol
        said, ours = protocol.close_rcvd, protocol.close_sent
        code = str(self._socket.close_code)
        self._service.metrics.ended.labels(code).inc()
        if protocol.close_rcvd_then_sent:
            how = f"closed by the client before its end (code {code})"
        elif ours is not None and ours.code != NORMAL.code:
            how = f"ended by the daemon (code {ours.code}: {ours.reason})"
        else:
            how = "complete" if said is not None else "its client vanished"
        if self._live_session is None:
            logger.info("a connection ended before it began a session: %s", how)
            return
        lost = said is None and (ours is None or ours.code == NORMAL.code)
        self._registry.leave(self._live_session, lost=lost, how=how)
