"""What a client's frames ask of its session, and what it is told where it asks wrongly."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import assert_never

from daemon.sessions.close_reasons import REFUSED, CloseReason, busy, too_many_errors
from daemon.sessions.deadlines import Deadlines
from daemon.sessions.live_session import Client, LiveSession, Service
from daemon.sessions.registry import SessionRegistry
from streaming.dialects.dialect import Action, Check, Dialect, Reply
from streaming.lifecycle import Event, State, after
from streaming.protocol import (
    Configure,
    Error,
    Flush,
    ProtocolError,
    Resume,
    Start,
    Stop,
)

MOST_ERRORS = 10  # a client that gets this many things wrong will not get better

COMMANDS = {Configure: Event.CONFIGURE, Flush: Event.FLUSH}


class FrameHandler:
    """One client's, which speaks `dialect` and whose token is called `label`.

    start_refusal: why it may not start a session now; empty if it may. session: once it has started or
    resumed one. excused: whether the client may well have sent what has not been read.
    """

    def __init__(
        self,
        client: Client,
        dialect: Dialect,
        label: str,
        service: Service,
        registry: SessionRegistry,
        start_refusal: Callable[[], str],
        excused: Callable[[], bool],
    ) -> None:
        self.session: LiveSession | None = None
        self._client = client
        self._dialect = dialect
        self._label = label
        self._service = service
        self._registry = registry
        self._start_refusal = start_refusal
        self._errors = 0
        self.counts = service.metrics.of_dialect(dialect.name)
        self.deadlines = Deadlines(
            service.config, self.shut_down, excused, starts_late=dialect.starts_late
        )

    @property
    def listens(self) -> bool:
        """Whether what the client says still matters."""
        return not self._client.gone and (self.session is None or self.session.listens)

    def opened(self) -> Iterator[Action]:
        """What the connection alone asks for. Nothing else may follow where that is refused."""
        yield from self._actions(self._dialect.open())
        if self._errors:
            self.shut_down(too_many_errors(self._errors))

    def received(self, frame: str | bytes) -> Iterator[Action]:
        """What a frame asks for, to be obeyed by `command` and `audio` in order."""
        yield from self._actions(self._dialect.receive(frame))

    async def command(self, action: Action) -> None:
        """Obey what is no audio."""
        with self._refusals():
            match action:
                case Start():
                    self._expect_no_session()
                    if reason := self._start_refusal():
                        self.shut_down(busy(reason))
                        return
                    self._serve(
                        self._registry.open(action, self._label, self._service, self._client)
                    )
                    self.counts.sessions.inc()
                case Resume():
                    self._expect_no_session()
                    self._serve(await self._registry.resume(action, self._label, self._client))
                case Configure() | Flush():
                    self._started(COMMANDS[type(action)]).command(action)
                case Stop():
                    self._started(Event.STOP).stop()
                case Check():
                    self._service.check(action.start)
                case Reply():
                    self._client.tell(action)
                    if action.wrong:
                        self._count_error()
                case bytes():
                    raise AssertionError("audio is for `audio`")
                case _:
                    assert_never(action)

    def audio(self, frame: bytes) -> Iterator[None]:
        """Process a frame, step by step. What was refused asks for no second step.

        A frame that was taken is processed whole, even if the client has gone: it counts as received.
        """
        with self._refusals():
            self._started(Event.AUDIO).feed(frame)
        yield
        while (
            (session := self.session)
            and session.stream.unprocessed
            and not session.state.is_finished
        ):
            with self._refusals():
                session.process()
            yield

    def shut_down(self, close_reason: CloseReason) -> None:
        """Listen no more, finish what was spoken, then close as `close_reason` says."""
        if not self.listens:
            return
        if self.session is not None:
            self.session.shut_down(close_reason)
            return
        if close_reason.error is not None:
            self._client.tell(close_reason.error)
        self._client.over(close_reason)

    def _actions(self, actions: Iterable[Action]) -> Iterator[Action]:
        """Each of `actions`, until one is refused: what follows rests upon those before."""
        errors = self._errors
        with self._refusals():
            for action in actions:
                yield action
                if self._errors > errors or not self.listens:
                    return

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Tell the client what it gets wrong meanwhile."""
        try:
            yield
        except ProtocolError as error:
            fatal = not self._dialect.forgiving
            self._client.tell(Error(code=error.code, message=str(error), fatal=fatal))
            self._count_error()
        self._client.changed()

    def _count_error(self) -> None:
        self._errors += 1
        self.counts.errors.inc()
        if not self._dialect.forgiving:
            self.shut_down(REFUSED)
        elif self._errors >= MOST_ERRORS:
            self.shut_down(too_many_errors(self._errors))

    def _serve(self, session: LiveSession) -> None:
        self.session = session
        self.deadlines.started(session)

    def _expect_no_session(self) -> None:
        after(State.STARTING if self.session is None else self.session.state, Event.START)

    def _started(self, event: Event) -> LiveSession:
        """The session. Raises ProtocolError where there is none that could take `event`."""
        if self.session is None:
            after(State.STARTING, event)
        assert self.session is not None
        return self.session
