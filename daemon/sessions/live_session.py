"""One session's place in the service: its stream, its work, and what its client may have missed.

It outlives its connection; streaming/lifecycle.py has the table of its life. No decision about sound, text
or the order of work is taken here, nothing waits, and no socket is known. Every step of the stream goes
through `_follow`.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, assert_never

from msgspec.structs import replace

from daemon.config import Config
from daemon.monitoring.metrics import AudioMeter, Metrics
from daemon.recognition import request_builder
from daemon.recognition.scheduler import Engine, Scheduler
from daemon.sessions.close_reasons import INTERNAL, NORMAL, CloseReason
from daemon.sessions.dispatch import Dispatcher
from daemon.sessions.lag import LagReporter
from daemon.sessions.record import Record
from daemon.sessions.replay_log import ReplayLog
from daemon.sessions.transcripts import Transcript, Transcripts
from model.engine.requests import Failure
from streaming import protocol
from streaming.configuration import changed
from streaming.dialects.dialect import Told
from streaming.hypothesis import Hypothesis
from streaming.lifecycle import State
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

    def check(self, start: protocol.Start) -> None:
        """Raises ProtocolError where the engine cannot do what `start` asks."""
        try:
            request_builder.check(start, self.engine)
        except ValueError as error:
            raise protocol.ProtocolError("bad_request", str(error)) from None

    def transcript(self, name: str, label: str, start: protocol.Start) -> Transcript | None:
        """A new one for the session `name`, where transcripts are wanted."""
        if self.transcripts is None:
            return None
        about = {"model": self.engine.name, "token": label, "task": start.task}
        return self.transcripts.open(name, about)


class Client(Protocol):
    """A connection, as its session knows it."""

    @property
    def gone(self) -> bool:
        """Whether it can be told nothing any more."""

    def tell(self, message: Told) -> None:
        """The next message."""

    def changed(self) -> None:
        """There may be more or less work at hand than before."""

    def over(self, close_reason: CloseReason) -> None:
        """There will be no further message."""

    async def give_way(self) -> None:
        """Leave; returns when the session has been left."""


class LiveSession:
    """The session `name`, begun by `start` of a client whose token is called `label`.

    on_closed: told once, when the session is closed. Raises ProtocolError as `Service.check` does.

    stream: its audio and its captions. record: what it has said. client: who is told so, if anyone.
    acknowledged_bytes: of the audio, as the client counts it; bytes_per_second: of its format.
    opened: on the loop's clock, in seconds. close_reason: how its connection will be closed; outcome: how
    the session ended, for the log.
    """

    def __init__(
        self, name: str, label: str, start: protocol.Start, service: Service, on_closed: "OnClosed"
    ) -> None:
        service.check(start)
        self.name = name
        self.label = label
        self.config = service.config
        keeps = start.resumable and service.config.resume_seconds > 0
        self.key = secrets.token_urlsafe(16) if keeps else None
        self.client: Client | None = None
        self.acknowledged_bytes = 0
        self.close_reason = NORMAL
        self.outcome = ""
        self._resumed = False
        self.bytes_per_second = start.rate * start.channels * protocol.SAMPLE_BYTES[start.encoding]
        self._service = service
        self._on_closed = on_closed
        self.opened = asyncio.get_running_loop().time()
        transcript = service.transcript(name, label, start)
        self.record = Record(ReplayLog(kept=keeps), transcript, words=start.words)
        timed = replace(start, words=start.words or transcript is not None)  # cues follow words
        self.stream = Session(timed, service.settings)
        self._audio = AudioMeter(service.metrics)
        self.lag = LagReporter(
            lambda: None if self.state.is_finished else self.client, sheds_partials=start.partials
        )
        service.metrics.started.inc()
        self._dispatcher = Dispatcher(name, service.scheduler, self.lag, self._decoded)

    @property
    def state(self) -> State:
        """Where it is in its life."""
        return self.stream.state

    @property
    def listens(self) -> bool:
        """Whether what the client says still matters: not once the daemon ends the session."""
        return not self.state.is_finished and self.close_reason is NORMAL

    def attach(self, client: Client, finals: int) -> None:
        """From now on tell `client`, first what came after the first `finals` finals.

        Raises LookupError where that is not known any more, or not yet.
        """
        missed = self.record.replay_log.after(finals)
        if self.state.is_awaited:
            self.stream.attach()
            self._resumed = True
            self._service.metrics.resumed.inc()
        self.client = client
        client.tell(ready(self, self._service, self.stream.settings))
        for message in missed:
            client.tell(message)
        if self.state.is_finished:
            client.over(self.close_reason)
        self.lag.watch()

    def detach(self) -> None:
        """The connection was lost; the client is awaited back."""
        self.client = None
        self.stream.detach()

    def feed(self, data: bytes) -> None:
        """Take a frame and process its beginning. Raises ProtocolError as `Session.feed` does."""
        if self.state is State.OPEN:
            self.acknowledged_bytes += len(data)
        self._follow(partial(self.stream.feed, data))

    def process(self) -> None:
        """Go on with what was fed."""
        self._follow(self.stream.process)

    def command(self, message: protocol.Configure | protocol.Flush) -> None:
        """Obey. Raises ProtocolError as `Session.configure`, `Session.flush` and `Service.check` do.

        A resumed client may repeat what preceded its stop; that is ignored.
        """
        if self._resumed and self.state is State.DRAINING:
            return
        if isinstance(message, protocol.Flush):
            self._follow(self.stream.flush)
        else:
            self._service.check(changed(self.stream.configurations.newest.options, message))
            self._follow(partial(self.stream.configure, message))

    def pause(self) -> None:
        """The client sends nothing: end the open utterance as if a pause had come."""
        self._follow(self.stream.pause)

    def stop(self) -> None:
        """The client has no more audio."""
        self._follow(self.stream.stop)

    def shut_down(self, close_reason: CloseReason) -> None:
        """Finish what was spoken, then end as `close_reason` says. Only for one that `listens`."""
        self.close_reason = close_reason
        self._follow(self.stream.shut_down)

    def expire(self, outcome: str) -> None:
        """No client is awaited any more; what was spoken still belongs into a transcript."""
        if self.record.transcript is None or self.state.is_finished:
            self.drop(outcome)
            return
        self.client = None
        self.outcome = outcome
        self._follow(self.stream.expire)
        if self.state.is_finished and self.state is not State.CLOSED:  # a fault on the way
            self.drop(outcome)

    def drop(self, outcome: str) -> None:
        """Give up all that is pending, for good."""
        self.client = None
        self.outcome = outcome
        if not self.state.is_finished:
            self.stream.abort()
        if self.state is not State.CLOSED:
            self.stream.expire()
        self._release()

    def _release(self) -> None:
        """The session is closed: let go of all that it has."""
        self._dispatcher.cancel()
        self.record.close()
        self._on_closed(self)

    def _follow(self, step: Callable[[], Iterable[Output]]) -> None:
        """Take a step of the stream, carry out what follows, survive what fails.

        What comes for a session that is finished comes too late, and is no fault of the client's.
        """
        if self.state.is_finished:
            return
        try:
            for output in step():
                self._carry_out(output)
        except protocol.ProtocolError:
            raise
        except Exception:
            logger.exception("session %s: fault", self.name, extra={"session": self.name})
            if not self.state.is_finished:
                self.close_reason = INTERNAL
                self.stream.abort()
                self._finish()
        self._audio.reached(self.stream.received)
        if self.client is not None:
            self.client.changed()

    def _carry_out(self, output: Output) -> None:
        match output:
            case Decode():
                self._dispatcher.submit(output)
            case protocol.Closed():
                self._finish(output)
            case protocol.Final():
                self._service.metrics.final(output)
                self._tell(output)
            case protocol.Speech() | protocol.Configured() | protocol.Flushed() | protocol.Error():
                self._tell(output)
            case protocol.Partial():
                if self.client is not None:
                    self.client.tell(output)
            case _:
                assert_never(output)

    def _tell(self, message: protocol.ServerMessage) -> None:
        told = self.record.add(message)
        if self.client is not None:
            self.client.tell(told)

    def _finish(self, closed: protocol.Closed | None = None) -> None:
        """Tell the last messages."""
        if self.close_reason.error is not None:
            self._tell(self.close_reason.error)
        if closed is not None:
            self._tell(closed)
        self._dispatcher.cancel()
        if self.client is not None:
            self.client.over(self.close_reason)
        if self.state is State.CLOSED:
            self._release()

    def _decoded(self, decode: Decode, result: Hypothesis | Failure, ms: float) -> None:
        if isinstance(result, Failure):
            self._follow(partial(self.stream.fail, decode, result.message))
            return
        if not decode.final and not self.state.is_finished:
            self._service.metrics.partial(ms)
        self._follow(partial(self.stream.accept, decode, result, ms))


OnClosed = Callable[[LiveSession], None]


def ready(live_session: LiveSession, service: Service, settings: Settings) -> protocol.Ready:
    """The message that answers a start or a resume; `settings` are the session's own."""
    return protocol.Ready(
        session=live_session.name,
        model=service.engine.name,
        drafter=service.engine.drafter,
        limits=protocol.Limits(
            frame_bytes=live_session.config.max_frame_bytes,
            utterance_seconds=settings.cap_ms / 1000,
            buffered_seconds=live_session.config.max_buffered_seconds,
            resume_seconds=0.0 if live_session.key is None else live_session.config.resume_seconds,
        ),
        key=live_session.key,
        heard=live_session.acknowledged_bytes,
    )
