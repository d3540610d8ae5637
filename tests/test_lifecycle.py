"""The table of a session's life, and walks through it with the real session and registry."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from daemon.config import Config
from daemon.monitoring.metrics import Metrics
from daemon.recognition.request_queue import Work
from daemon.recognition.scheduler import Scheduler
from daemon.sessions.close_reasons import INTERNAL, SHUTTING_DOWN, CloseReason
from daemon.sessions.frame_handler import FrameHandler
from daemon.sessions.live_session import LiveSession, Service
from daemon.sessions.registry import SessionRegistry
from daemon.sessions.transcripts import Transcripts
from model.engine.requests import Request
from streaming.dialects.dialect import Opening, Told
from streaming.dialects.native import Native
from streaming.lifecycle import NOT_STARTED, STARTED, STEPS, STOPPED, Event, State, after
from streaming.protocol import (
    ClientMessage,
    Closed,
    Configure,
    Error,
    Final,
    Flush,
    ProtocolError,
    Resume,
    Start,
    Stop,
)
from streaming.settings import Settings
from tests.support.fakes import ScriptedEngine, health
from tests.support.wire import frames, speech

AWAITED_BACK = 900.0  # seconds


def exits(state: State) -> set[State]:
    """Where one event may lead."""
    return {to for (at, _), to in STEPS.items() if at is state and isinstance(to, State)}


@pytest.mark.parametrize("state", State)
def test_every_state_comes_after_the_start_and_before_the_end(state: State) -> None:
    ahead = {State.STARTING}
    for _ in State:
        ahead |= {to for one in ahead for to in exits(one)}
    assert state in ahead
    reached = {state}
    for _ in State:
        reached |= {to for one in reached for to in exits(one)}
    assert State.CLOSED in reached
    assert exits(State.CLOSED) == set()


@pytest.mark.parametrize(("state", "event"), [(s, e) for s in State for e in Event])
def test_an_event_leads_on_is_refused_or_is_our_own_mistake(state: State, event: Event) -> None:
    step = STEPS.get((state, event))
    if isinstance(step, State):
        assert after(state, event) is step
        return
    mistake = AssertionError if step is None else ProtocolError
    with pytest.raises(mistake, match=step or f"{event} in {state}"):
        after(state, event)


def test_what_is_refused_is_said_in_words() -> None:
    refused = {pair: step for pair, step in STEPS.items() if isinstance(step, str)}
    assert {event for _, event in refused} == {
        Event.START,
        Event.AUDIO,
        Event.CONFIGURE,
        Event.FLUSH,
        Event.STOP,
    }
    for (state, event), words in refused.items():
        early = state is State.STARTING
        assert words == (NOT_STARTED if early else STARTED if event is Event.START else STOPPED)


@pytest.mark.parametrize("state", [state for state in State if state.is_awaited])
def test_who_comes_back_finds_the_session_as_it_was_left(state: State) -> None:
    assert after(after(state, Event.RESUMED), Event.LOST) is state
    assert after(state, Event.RESUMED).is_finished is state.is_finished
    assert after(state, Event.RESUMED).takes_audio is state.takes_audio


class Clockwork(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still until it is set."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Queue:
    """In place of the scheduler: a script answers what is submitted when the test says so."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine(text=self._hear)
        self.works: list[Work] = []
        self.finals = 0  # asked for
        self.answered = 0  # of them
        self._fails = False

    def submit(self, work: Work) -> None:
        self.works.append(work)
        self.finals += work.final

    def cancel(self, session: str) -> None:
        self.works.clear()

    def answer(self, at: int, *, fails: bool) -> None:
        work = self.works.pop(at)
        self._fails = fails
        self.engine.admit(work.request)
        (result,) = self.engine.step()
        self.answered += work.final
        work.done(result, 1.0)

    def _hear(self, request: Request) -> str:
        return "unspeakable" if self._fails else str(len(request.audio))


class Notes:
    """In place of the transcripts."""

    def __init__(self) -> None:
        self.finals: list[Final] = []
        self.closed: list[Closed | None] = []

    def open(self, session: str, about: dict[str, str]) -> "Notes":
        return self

    def final(self, final: Final) -> None:
        self.finals.append(final)

    def close(self, closed: Closed | None) -> None:
        self.closed.append(closed)


class Wire:
    """A connection without a socket: what it is told, and the way to what it says."""

    def __init__(self, walk: "Walk") -> None:
        self._walk = walk
        self.gone = False
        self.told: list[Told] = []
        self.handler = FrameHandler(
            self, Native(Opening("")), "", walk.service, walk.registry, lambda: "", lambda: False
        )

    def tell(self, message: Told) -> None:
        assert not self.gone, "told after the end"
        self.told.append(message)

    def changed(self) -> None:
        pass

    def over(self, close_reason: CloseReason) -> None:
        self.gone = True

    async def give_way(self) -> None:
        self.end(lost=True)

    def end(self, *, lost: bool) -> None:
        """The connection has ended."""
        self.gone = True
        self.handler.deadlines.cancel()
        if self.handler.session is not None:
            self._walk.registry.leave(self.handler.session, lost=lost, how="it ended")

    def errors(self) -> list[str]:
        return [one.message for one in self.told if isinstance(one, Error)]


class Walk(RuleBasedStateMachine):
    """A client, its connections and one session, in any order of events."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Clockwork()
        self.registry = SessionRegistry()
        self.forget()

    def forget(self) -> None:
        """All that this session was."""
        self.queue = Queue()
        self.notes = Notes()
        self.session: LiveSession | None = None
        self.finals: list[int] = []  # utterances of the finals that the client has
        self.audio = frames(speech(), 44_800)
        self.returned = False
        self.dropped = False
        self.broken = False

    def run(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Let the loop do it, and all that is due."""

        async def settle() -> None:
            await coroutine
            await asyncio.sleep(0)

        self.loop.run_until_complete(settle())

    async def do(self, act: Any) -> None:
        act()

    @initialize(recorded=st.booleans(), resumable=st.booleans())
    def begin(self, recorded: bool, resumable: bool) -> None:
        """Another life. As a rule it begins with somebody who speaks."""
        self.recorded = recorded
        self.run(self.do(self.dial))
        self.start(resumable=resumable, partials=False)
        self.hear_audio()

    @precondition(lambda self: self.over)
    @rule(recorded=st.booleans(), silent=st.booleans())
    def begin_again(self, recorded: bool, silent: bool) -> None:
        self.check()
        self.forget()
        if silent:
            self.run(self.do(self.dial))
        else:
            self.begin(recorded=recorded, resumable=True)

    def dial(self) -> None:
        """Another connection."""
        self.service = Service(
            Config(resume_seconds=AWAITED_BACK, start_timeout_seconds=60.0, idle_seconds=0.0),
            Settings(vad="webrtc", minimum_speech_ms=120),
            cast(Scheduler, self.queue),
            self.queue.engine,
            Metrics(health),
            cast(Transcripts, self.notes) if self.recorded else None,
        )
        self.wire = Wire(self)

    @property
    def state(self) -> State:
        return State.STARTING if self.session is None else self.session.state

    @property
    def over(self) -> bool:
        """Whether nothing more can happen to this session, or to a client that never started one."""
        return self.state is State.CLOSED or (self.session is None and self.wire.gone)

    @property
    def attached(self) -> bool:
        return self.session is None or self.session.client is not None

    @property
    def awaited(self) -> bool:
        return self.state.is_awaited

    def say(self, event: Event, *said: ClientMessage | bytes) -> None:
        """From the client: answered as the table says."""
        if not self.wire.handler.listens:
            return
        refusal = STEPS[self.state, event]
        # A client that came back may not know that its stop was heard.
        command = event in {Event.CONFIGURE, Event.FLUSH}
        excused = self.returned and command and self.state is State.DRAINING
        before = len(self.wire.errors())
        for one in said:
            self.run(self.hear(one))
        news = self.wire.errors()[before:]
        if isinstance(refusal, str) and not excused:
            assert self.broken or news[:1] == [refusal]
        else:
            ours = INTERNAL.error.message if self.broken and INTERNAL.error else "recognised"
            assert not [one for one in news if "recognised" not in one and one != ours]

    async def hear(self, said: ClientMessage | bytes) -> None:
        if isinstance(said, bytes):
            list(self.wire.handler.audio(said))
        else:
            await self.wire.handler.command(said)

    @precondition(lambda self: self.attached and not self.wire.gone)
    @rule(resumable=st.booleans(), partials=st.booleans())
    def start(self, resumable: bool, partials: bool) -> None:
        self.say(Event.START, Start(resumable=resumable, partials=partials))
        self.session = self.wire.handler.session

    @precondition(lambda self: self.attached and not self.wire.gone)
    @rule()
    def hear_audio(self) -> None:
        self.say(Event.AUDIO, self.audio.pop(0) if self.audio else b"")

    @precondition(lambda self: self.attached and not self.wire.gone)
    @rule(prompt=st.sampled_from(["one", "two"]))
    def configure(self, prompt: str) -> None:
        opened = (
            self.session.stream.configurations.newest.options if self.session is not None else None
        )
        self.say(Event.CONFIGURE, Configure(prompt=prompt))
        if self.session is not None and opened is not None and not self.broken:
            asked = self.session.stream.configurations.newest.options
            assert asked.prompt == (prompt if self.state is State.OPEN else opened.prompt)

    @precondition(lambda self: self.attached and not self.wire.gone)
    @rule()
    def flush(self) -> None:
        self.say(Event.FLUSH, Flush())

    @precondition(lambda self: self.attached and not self.wire.gone)
    @rule()
    def stop(self) -> None:
        self.say(Event.STOP, Stop())

    @precondition(lambda self: self.session is not None and self.attached)
    @rule()
    def lose(self) -> None:
        self.run(self.do(lambda: self.end(lost=True)))

    @precondition(lambda self: self.session is not None and self.attached)
    @rule()
    def hang_up(self) -> None:
        self.run(self.do(lambda: self.end(lost=False)))

    def end(self, *, lost: bool) -> None:
        self.wire.end(lost=lost)
        self.take()

    def take(self) -> None:
        """What the client knows of the finals: none is missing, none came twice."""
        known = [one.utterance for one in self.wire.told if isinstance(one, Final)]
        self.wire.told = [one for one in self.wire.told if isinstance(one, Closed)]
        self.finals += known
        assert self.finals == list(range(len(self.finals)))

    @precondition(lambda self: self.session is not None and self.session.key is not None)
    @precondition(lambda self: self.attached or self.awaited)
    @rule()
    def resume(self) -> None:
        """Also where the old connection has not ended yet."""
        assert self.session is not None
        assert self.session.key is not None
        self.take()
        self.run(self.do(self.dial))
        self.run(
            self.hear(
                Resume(
                    session=self.session.name,
                    key=self.session.key,
                    finals=len(self.finals),
                    heard=self.session.acknowledged_bytes,
                )
            )
        )
        assert self.wire.handler.session is self.session
        self.returned = True

    @precondition(lambda self: self.awaited)
    @rule()
    def expire(self) -> None:
        self.loop.now += AWAITED_BACK
        self.run(asyncio.sleep(0))

    @rule(data=st.data(), fails=st.booleans())
    @precondition(lambda self: self.queue.works)
    def answer(self, data: st.DataObject, fails: bool) -> None:
        at = data.draw(st.integers(0, len(self.queue.works) - 1))
        self.run(self.do(lambda: self.queue.answer(at, fails=fails)))

    @precondition(lambda self: self.queue.works)
    @rule()
    def finish(self) -> None:
        while self.queue.works:
            self.run(self.do(lambda: self.queue.answer(0, fails=False)))

    @precondition(lambda self: self.state is State.OPEN or self.awaited)
    @rule()
    def shut_down(self) -> None:
        if self.state is State.OPEN:
            self.run(self.do(lambda: self.wire.handler.shut_down(SHUTTING_DOWN)))
        else:
            clearing = self.loop.create_task(self.registry.clear())
            self.run(asyncio.sleep(0))
            self.finish()
            self.loop.run_until_complete(clearing)

    @precondition(lambda self: self.awaited or self.state is State.UNATTENDED)
    @rule()
    def insist(self) -> None:
        """The daemon stops at once."""
        self.run(self.do(self.registry.abandon))
        self.dropped = True

    @precondition(lambda self: self.session is not None and not self.over and not self.broken)
    @rule()
    def break_stream(self) -> None:
        """From now on every step of the stream is a fault of our own."""

        def fault(*_: object) -> None:
            raise RuntimeError("a fault of the stream")

        assert self.session is not None
        stream = cast(Any, self.session.stream)
        for step in (
            "feed",
            "process",
            "configure",
            "flush",
            "stop",
            "shut_down",
            "accept",
            "fail",
        ):
            setattr(stream, step, fault)
        expire = stream.expire
        stream.expire = lambda: expire() if stream.state.is_finished else fault()
        self.broken = True

    def teardown(self) -> None:
        if self.session is not None:
            self.stop()
            self.finish()
            if self.attached and self.state is not State.CLOSED:
                self.hang_up()
            if self.awaited:
                self.expire()
            self.finish()
        self.check()
        self.loop.close()

    def check(self) -> None:
        """Every final was delivered, is in the transcript, or is counted as given up."""
        self.wire.handler.deadlines.cancel()
        if self.session is None:
            return
        assert self.state is State.CLOSED
        assert not len(self.registry)
        assert not self.queue.works
        assert self.queue.finals == self.queue.answered + self.session.lag.outstanding
        told = self.session.record.replay_log.finals
        if self.recorded:
            assert [final.utterance for final in self.notes.finals] == list(range(told))
            (closed,) = self.notes.closed
            assert closed is None or closed.finals == told
            given_up = self.dropped or self.broken
            assert given_up or (closed is not None and self.session.lag.outstanding == 0)
        for message in self.wire.told:
            assert isinstance(message, Closed)
            assert message.finals == told == len(self.finals)


TestWalk = Walk.TestCase
TestWalk.settings = hypothesis.settings(deadline=None, max_examples=60, stateful_step_count=30)
