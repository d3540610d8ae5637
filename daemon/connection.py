"""One client's connection: frames in, session, work out; results in, messages out.

No decision about sound, text or the order of work is taken here, and nothing waits for anything
but the socket. Everything that may change the session passes through one door, `_inlet`.

What a client may get wrong, and what follows:

    bad text frame, audio or command out of order,    an `error` message; the session goes on
    unusable sound, a start with wrong values
    the tenth such error                              pending finals, fatal `error`, close 1008
    no start in time                                  fatal `error`, close 1008
    malformed frame, text not UTF-8, frame too large  close 1002, 1007 or 1009 by the websocket layer:
                                                      no `error`, and pending finals are lost
    a fault of our own                                fatal `error`, close 1011, and a log entry:
                                                      pending finals are lost
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import assert_never

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from daemon.config import Config
from daemon.farewell import INTERNAL, NORMAL, OVERDUE, SHUTTING_DOWN, Farewell, too_many_errors
from daemon.outbox import Lateness, Outbox
from daemon.scheduler import Engine, Result, Scheduler, Work
from model.requests import Failure, Request
from streaming.protocol import (
    SAMPLE_RATE,
    Closed,
    Error,
    Final,
    Flush,
    Limits,
    Partial,
    ProtocolError,
    Ready,
    Speech,
    Start,
    Stop,
    decode_client,
    encode,
)
from streaming.segmenter import Settings
from streaming.session import Decode, Output, Session

logger = logging.getLogger(__name__)

MOST_ERRORS = 10  # a client that gets this many things wrong will not get better


@dataclass(frozen=True, slots=True)
class Service:
    """What the connections of a daemon share. settings: what `config` tells the streaming room."""

    config: Config
    settings: Settings
    scheduler: Scheduler
    engine: Engine


class Connection:
    """Serves one websocket from its opening to its end. name: of the session."""

    def __init__(self, socket: ServerConnection, name: str, service: Service) -> None:
        self.name = name
        self._socket = socket
        self._config = service.config
        self._settings = service.settings
        self._scheduler = service.scheduler
        self._engine = service.engine
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox()
        self._start: Start | None = None
        self._session: Session | None = None
        self._stopped = False  # the client said that its audio is over
        self._deaf = False  # whatever the client still says is ignored
        self._ended = False  # the last message is queued; nothing may follow
        self._farewell = NORMAL
        self._errors = self._finals = 0
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._lateness = Lateness()
        # The newest hypothesis and its utterance: nearly always a right draft of the next one.
        self._heard: tuple[int, tuple[int, ...]] = -1, ()
        self._timers: dict[str, asyncio.TimerHandle] = {}  # that are running, by purpose

    async def run(self) -> None:
        """Serve until the socket is closed. Leaves nothing behind: no task, no work, no timer."""
        timeout = self._config.start_timeout_seconds
        self._timers["start"] = self._loop.call_later(timeout, self._wind_down, OVERDUE)
        writer = asyncio.create_task(self._write())
        # A reader that is paused learns in this way that its client is gone.
        watcher = asyncio.create_task(self._socket.wait_closed())
        watcher.add_done_callback(self._forsake)
        try:
            async for message in self._socket:
                await self._take(message)
        except ConnectionClosed:
            pass  # the log line below tells how
        finally:
            self._ended = True
            self._scheduler.cancel(self.name)
            for timer in self._timers.values():
                timer.cancel()
            writer.cancel()
            watcher.cancel()
            await asyncio.wait([writer, watcher])
            self._log_end()

    def shut_down(self) -> None:
        """End the session as if the client had said stop: pending finals are still delivered."""
        if not self._stopped:
            self._wind_down(SHUTTING_DOWN)

    def _log_end(self) -> None:
        logger.info(
            "session %s: over (%s %s), %d finals sent, %d given up",
            self.name,
            self._socket.close_code,
            self._socket.close_reason or "without a reason",
            self._finals,
            self._lateness.outstanding,
        )

    @property
    def _listens(self) -> bool:
        """Whether what the client says still matters."""
        return not (self._deaf or self._ended)

    async def _take(self, message: str | bytes) -> None:
        """One frame from the client, step by step; in between the other clients get their turn."""
        for step in self._steps(message):
            if self._listens:
                self._inlet(step)
            # Frames that have arrived are read without a pause unless one is made.
            await asyncio.sleep(0)
            await self._may_read.wait()

    def _steps(self, message: str | bytes) -> Iterator[Callable[[], Iterable[Output]]]:
        """What a frame asks of the session. Sound that was refused asks for no second step."""
        if isinstance(message, str):
            yield partial(self._obey, message)
            return
        yield partial(self._feed, message)
        while self._listens and self._session is not None and self._session.unheard:
            yield self._session.hear

    def _forsake(self, _closed: asyncio.Task[None]) -> None:
        """The client is gone: whatever it has still sent is read and thrown away."""
        self._deaf = True
        self._may_read.set()

    def _inlet(self, step: Callable[[], Iterable[Output]]) -> None:
        """The one door to the session: take a step, carry out what follows, handle what fails."""
        if self._ended:
            return
        try:
            for output in step():
                self._carry_out(output)
        except ProtocolError as error:
            self._refuse(Error(code=error.code, message=str(error), fatal=False))
        except Exception:
            logger.exception("session %s: fault", self.name)
            self._farewell = INTERNAL
            self._end()
        if self._errors >= MOST_ERRORS:
            self._wind_down(too_many_errors(self._errors))
        self._regulate()

    def _obey(self, text: str) -> Iterable[Output]:
        message = decode_client(text)
        match message:
            case Start():
                return self._open(message)
            case Flush():
                return self._opened().flush()
            case Stop():
                session = self._opened()
                self._stopped = True
                return session.stop()
        assert_never(message)

    def _feed(self, data: bytes) -> Iterable[Output]:
        return self._opened().feed(data)

    def _opened(self) -> Session:
        if self._session is None:
            raise ProtocolError("bad_order", 'the first message must be {"type": "start"}')
        return self._session

    def _open(self, start: Start) -> Iterable[Output]:
        if self._session is not None:
            raise ProtocolError(
                "bad_order", "this session has started; open another connection for another one"
            )
        try:
            self._engine.check(_request(start, np.zeros(SAMPLE_RATE, np.float32)))
        except ValueError as error:
            raise ProtocolError("bad_request", str(error)) from None
        self._session = Session(start, self._settings)
        self._start = start
        self._lateness.sheds_partials = start.partials
        self._timers.pop("start").cancel()
        self._outbox.put(self._ready())
        return ()

    def _ready(self) -> Ready:
        return Ready(
            session=self.name,
            model=self._engine.name,
            drafter=self._engine.drafter,
            limits=Limits(
                frame_bytes=self._config.max_frame_bytes,
                utterance_seconds=self._settings.cap_ms / 1000,
                buffered_seconds=self._config.max_buffered_seconds,
            ),
        )

    def _carry_out(self, output: Output) -> None:
        match output:
            case Decode():
                self._submit(output)
            case Error():
                self._refuse(output)
            case Closed():
                self._end(output)
            case Final():
                self._finals += 1
                self._outbox.put(output)
            case Speech() | Partial():
                self._outbox.put(output)
            case _:
                assert_never(output)

    def _submit(self, decode: Decode) -> None:
        assert self._start is not None
        work = Work(
            session=self.name,
            utterance=decode.utterance,
            final=decode.final,
            request=_request(
                self._start,
                decode.audio,
                fitted_window=not decode.final,
                previous=self._heard[1] if self._heard[0] == decode.utterance else (),
            ),
            done=partial(self._decoded, decode),
        )
        if decode.final:
            self._lateness.submitted(decode.utterance, self._loop.time())
            self._watch_lateness()
        self._scheduler.submit(work)

    def _decoded(self, decode: Decode, result: Result, milliseconds: float) -> None:
        """The scheduler's answer."""
        if decode.final:
            self._lateness.finished(decode.utterance)
        session = self._opened()
        if isinstance(result, Failure):
            self._inlet(partial(session.fail, decode, result.message))
        else:
            if decode.utterance >= self._heard[0]:
                self._heard = decode.utterance, result.tokens
            self._inlet(partial(session.accept, decode, result, milliseconds))

    def _refuse(self, error: Error) -> None:
        """Tell the client what went wrong; an utterance that cannot be decoded is not its fault."""
        self._outbox.put(error)
        self._errors += error.code != "decode_failed"

    def _wind_down(self, farewell: Farewell) -> None:
        """Listen no more, finish what was spoken, then close as `farewell` says."""
        if not self._listens:
            return
        self._deaf = True
        self._farewell = farewell
        if self._session is None:
            self._end()
        else:
            self._inlet(self._session.stop)

    def _end(self, closed: Closed | None = None) -> None:
        """Queue the last messages. Reading goes on, but only for the client's close frame."""
        self._ended = True
        if self._farewell.error is not None:
            self._outbox.put(self._farewell.error)
        if closed is not None:
            self._outbox.put(closed)
        self._outbox.end()
        self._scheduler.cancel(self.name)

    def _regulate(self) -> None:
        """Pause reading while too much waits for finals or for the client to read.

        The kernel's buffers then fill and the client's sending comes to rest: nothing is dropped.
        """
        backlog = 0 if self._session is None else self._session.backlog_samples
        waits = backlog > self._config.max_buffered_seconds * SAMPLE_RATE or self._outbox.full
        if waits and self._listens:
            self._may_read.clear()
        else:
            self._may_read.set()

    def _watch_lateness(self) -> None:
        due = self._lateness.due
        if due is not None and "lag" not in self._timers:
            self._timers["lag"] = self._loop.call_at(due, self._report_lateness)

    def _report_lateness(self) -> None:
        del self._timers["lag"]
        lag = self._lateness.look(self._loop.time())
        if not self._ended:
            if lag is not None:
                self._outbox.put(lag)
            self._watch_lateness()

    async def _write(self) -> None:
        """The only writer of messages; one slow client holds up nobody but itself."""
        try:
            while (message := await self._outbox.get()) is not None:
                await self._socket.send(encode(message))
                self._regulate()
            await self._socket.close(self._farewell.code, self._farewell.reason)
        except ConnectionClosed:
            pass  # the reader sees it, too
        except Exception:
            logger.exception("session %s: writing failed", self.name)
            self._socket.transport.abort()


def _request(
    start: Start,
    audio: NDArray[np.float32],
    *,
    fitted_window: bool = False,
    previous: tuple[int, ...] = (),
) -> Request:
    """What `start` asks for, of this `audio`."""
    language = start.language
    return Request(
        audio=audio,
        language=tuple(language) if isinstance(language, list) else language,
        task=start.task,
        prompt=start.prompt,
        temperature=start.temperature,
        seed=start.seed,
        fitted_window=fitted_window,
        previous=previous,
    )
