"""One session's place in the service: its stream, its work, and what its client may have missed.

It outlives its connection. No decision about sound, text or the order of work is taken here, nothing
waits, and no socket is known. Everything that may change the session passes through one door, `_follow`.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, assert_never

from daemon.config import Config
from daemon.monitoring.metrics import Metrics
from daemon.recognition import request_builder
from daemon.recognition.request_queue import Result, Work
from daemon.recognition.scheduler import Engine, Scheduler
from daemon.sessions.close_reasons import INTERNAL, NORMAL, CloseReason
from daemon.sessions.outbox import LagMonitor
from daemon.sessions.replay_log import ReplayLog
from daemon.sessions.transcripts import Transcript, Transcripts
from model.engine.requests import Failure
from streaming.protocol import (
    SAMPLE_BYTES,
    SAMPLE_RATE,
    Closed,
    Error,
    Final,
    Flushed,
    Limits,
    Partial,
    ProtocolError,
    Ready,
    ServerMessage,
    Speech,
    Start,
)
from streaming.session import Output, Session
from streaming.settings import Settings
from streaming.utterance import Decode

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """What the sessions of a daemon share. settings: what `config` tells the streaming room."""

    config: Config
    settings: Settings
    scheduler: Scheduler
    engine: Engine
    metrics: Metrics
    transcripts: Transcripts | None


class Client(Protocol):
    """Whoever is told what the session says."""

    def tell(self, message: ServerMessage) -> None:
        """The next message."""

    def changed(self) -> None:
        """There may be more or less work at hand than before."""

    def over(self, close_reason: CloseReason) -> None:
        """There will be no further message."""


class LiveSession:
    """The session `name`, begun by `start` of a client whose token is called `label`.

    Raises ProtocolError where the service cannot do what `start` asks.
    """

    def __init__(self, name: str, label: str, start: Start, service: Service) -> None:
        try:
            request_builder.check(start, service.engine)
        except ValueError as error:
            raise ProtocolError("bad_request", str(error)) from None
        self.name = name
        self.label = label
        self.config = service.config
        keeps = start.resumable and service.config.resume_seconds > 0
        self.key = secrets.token_urlsafe(16) if keeps else None
        self.client: Client | None = None
        self._attachments = 0  # more than one: its client was lost, and came back
        self.winding_down = False  # whatever the client still says is ignored
        self.acknowledged_bytes = 0  # of the audio, as the client counts it
        self.stopped = False  # the client said that its audio is over
        self.ended = False  # the last message has been told; nothing may follow
        self.close_reason = NORMAL
        self._start = start
        self._service = service
        self._scheduler = service.scheduler
        self._loop = asyncio.get_running_loop()
        self.opened = self._loop.time()
        self._session = Session(start, service.settings)
        self._closed: Closed | None = None
        self._accounted = 0  # samples told to the metrics
        self._replay_log = ReplayLog(kept=keeps)
        self._lag_monitor = LagMonitor()
        self._lag_monitor.sheds_partials = start.partials
        # The newest hypothesis and its utterance: nearly always a right draft of the next one.
        self._last_hypothesis: tuple[int, tuple[int, ...]] = -1, ()
        self._timer: asyncio.TimerHandle | None = None  # of the next look at the lateness
        service.metrics.started.inc()
        self.transcript: Transcript | None = None
        if service.transcripts is not None:
            about = {"model": service.engine.name, "token": label, "task": start.task}
            self.transcript = service.transcripts.open(name, about)

    @property
    def finals(self) -> int:
        """Told so far."""
        return self._replay_log.finals

    @property
    def outstanding(self) -> int:
        """Finals that are awaited."""
        return self._lag_monitor.outstanding

    @property
    def seconds(self) -> float:
        """Of audio received."""
        return self._session.received / SAMPLE_RATE

    @property
    def lasted(self) -> float:
        """Seconds on the clock."""
        return self._loop.time() - self.opened

    @property
    def bytes_per_second(self) -> int:
        """Of audio in the client's format."""
        size = SAMPLE_BYTES[self._start.encoding]
        return self._start.rate * self._start.channels * size

    @property
    def unprocessed(self) -> bool:
        """Whether some of the last frame waits for `hear`."""
        return self._session.unprocessed

    @property
    def overfull(self) -> bool:
        """Whether more audio awaits its finals than the configuration allows."""
        most = self.config.max_buffered_seconds * SAMPLE_RATE
        return self._session.pending_samples > most

    def attach(self, client: Client, finals: int) -> None:
        """From now on tell `client`, first what came after the first `finals` finals.

        Raises LookupError where that is not known any more, or not yet.
        """
        missed = self._replay_log.after(finals)
        self._service.metrics.resumed.inc(self._attachments > 0)
        self._attachments += 1
        self.client = client
        client.tell(self._ready())
        for message in missed:
            client.tell(message)
        if self.ended:
            client.over(self.close_reason)
        self._watch_lag()

    def feed(self, data: bytes) -> None:
        """Take a frame and hear its beginning. Raises ProtocolError as `Session.feed` does."""
        if not self.ended:
            if not self.stopped:
                self.acknowledged_bytes += len(data)
            self._follow(partial(self._session.feed, data))

    def process(self) -> None:
        """Hear on in what was fed."""
        if not self.ended:
            self._follow(self._session.process)

    def flush(self) -> None:
        """End the open utterance. Raises ProtocolError as `Session.flush` does.

        Of a client that came back: it may not know that the stop behind it was heard.
        """
        if not self.ended and not (self.stopped and self._attachments > 1):
            self._follow(self._session.flush)

    def stop(self) -> None:
        """The client's audio is over."""
        self.stopped = True
        if not self.ended:
            self._follow(self._session.stop)

    def wind_down(self, close_reason: CloseReason) -> None:
        """Finish what was spoken, then end as `farewell` says."""
        if not self.ended:
            self.winding_down = True
            self.close_reason = close_reason
            self._follow(self._session.stop)

    def discard(self) -> None:
        """Give up all that is pending; the seat is of no more use."""
        self.ended = True
        if self.transcript is not None:
            self.transcript.close(self._closed)
        self.client = None
        self._scheduler.cancel(self.name)
        if self._timer is not None:
            self._timer.cancel()

    def _ready(self) -> Ready:
        return Ready(
            session=self.name,
            model=self._service.engine.name,
            drafter=self._service.engine.drafter,
            limits=Limits(
                frame_bytes=self.config.max_frame_bytes,
                utterance_seconds=self._session.settings.cap_ms / 1000,
                buffered_seconds=self.config.max_buffered_seconds,
                resume_seconds=0.0 if self.key is None else self.config.resume_seconds,
            ),
            key=self.key,
            heard=self.acknowledged_bytes,
        )

    def _follow(self, step: Callable[[], Iterable[Output]]) -> None:
        """The one door to the session: take a step, carry out what follows, survive what fails."""
        try:
            for output in step():
                self._carry_out(output)
        except ProtocolError:
            raise
        except Exception:
            logger.exception("session %s: fault", self.name, extra={"session": self.name})
            self.close_reason = INTERNAL
            self._end()
        # What seemed to be sound may turn out to be a header.
        received = max(self._session.received, self._accounted)
        self._service.metrics.audio.inc((received - self._accounted) / SAMPLE_RATE)
        self._accounted = received
        if self.client is not None:
            self.client.changed()

    def _carry_out(self, output: Output) -> None:
        match output:
            case Decode():
                self._submit(output)
            case Closed():
                self._end(output)
            case Final():
                self._service.metrics.final(output)
                if self.transcript is not None:
                    self.transcript.final(output)
                self._tell(output)
            case Speech() | Flushed() | Error():
                self._tell(output)
            case Partial():
                if self.client is not None:
                    self.client.tell(output)
            case _:
                assert_never(output)

    def _tell(self, message: ServerMessage) -> None:
        self._replay_log.add(message)
        if self.client is not None:
            self.client.tell(message)

    def _end(self, closed: Closed | None = None) -> None:
        """Tell the last messages."""
        self.ended = True
        if self.close_reason.error is not None:
            self._tell(self.close_reason.error)
        if closed is not None:
            self._closed = closed
            self._tell(closed)
        self._scheduler.cancel(self.name)
        if self.client is not None:
            self.client.over(self.close_reason)

    def _submit(self, decode: Decode) -> None:
        work = Work(
            session=self.name,
            utterance=decode.utterance,
            final=decode.final,
            early=decode.early,
            request=request_builder.request(
                self._start,
                decode,
                draft_tokens=self._last_hypothesis[1]
                if self._last_hypothesis[0] == decode.utterance
                else (),
            ),
            done=partial(self._decoded, decode),
        )
        if decode.final:
            self._lag_monitor.submitted(decode.utterance, self._loop.time())
            self._watch_lag()
        self._scheduler.submit(work)

    def _decoded(self, decode: Decode, result: Result, milliseconds: float) -> None:
        """The scheduler's answer."""
        if self.ended:
            return
        if decode.final:
            self._lag_monitor.finished(decode.utterance)
        if isinstance(result, Failure):
            self._follow(partial(self._session.fail, decode, result.message))
            return
        if decode.utterance >= self._last_hypothesis[0]:
            self._last_hypothesis = decode.utterance, result.tokens
        if not decode.final:
            self._service.metrics.partial(milliseconds)
        hypothesis = request_builder.hypothesis(result)
        self._follow(partial(self._session.accept, decode, hypothesis, milliseconds))

    def _watch_lag(self) -> None:
        due = self._lag_monitor.due
        if due is not None and self._timer is None and self.client is not None:
            self._timer = self._loop.call_at(due, self._report_lag)

    def _report_lag(self) -> None:
        self._timer = None
        lag = self._lag_monitor.look(self._loop.time())
        if self.client is not None and not self.ended:
            if lag is not None:
                self.client.tell(lag)
            self._watch_lag()
