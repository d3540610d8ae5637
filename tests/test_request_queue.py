from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from daemon.recognition.request_queue import FileThrottle, PartialThrottle, RequestQueue, Work
from model.engine.requests import Request
from tests.support.fakes import work

SLOTS = 3


def test_files_take_turns_as_sessions_do() -> None:
    request_queue = RequestQueue()
    for name in ["a0x", "a1x", "a2x", "b0x"]:
        request_queue.put(work(name))
    taken = request_queue.take([], 4, now=0.0, files=3)
    assert names(taken) == ["a0x", "b0x", "a1x"]


def test_nobodys_lag_is_measured_by_files() -> None:
    request_queue = RequestQueue()
    request_queue.put(work("a0x"))
    assert (request_queue.oldest_final, request_queue.oldest_turn) == (None, None)
    assert not request_queue.has_live
    assert len(request_queue) == 1
    request_queue.drop("a")
    assert len(request_queue) == 0


def test_files_have_all_slots_but_one_where_nobody_speaks() -> None:
    throttle = FileThrottle()
    throttle.ran(0.0, 9.0)
    assert (throttle.most(9.0, 4), throttle.most(9.0, 1), throttle.pause(9.0)) == (3, 1, None)


def test_files_have_an_eighth_of_the_time_beside_live_sessions() -> None:
    throttle = FileThrottle()
    throttle.saw_live(10.0)
    assert throttle.most(10.0, 4) == 1
    throttle.ran(10.0, 11.0)
    assert (throttle.most(11.0, 4), throttle.pause(11.0)) == (0, 7.0)
    assert (throttle.most(18.0, 4), throttle.pause(18.0)) == (1, None)
    throttle.ran(18.0, 28.0)
    assert throttle.most(28.0, 4) == 3, "the last live work was ten seconds ago"


def names(works: list[Work]) -> list[str]:
    return [item.request.prompt for item in works]


@pytest.mark.parametrize(
    ("rule", "queued", "running", "slots", "taken"),
    [
        ("finals go before partials", "a0p b0f", "", 4, "b0f a0p"),
        ("finals of a session keep their order", "a0f a1f a2f", "", 4, "a0f a1f a2f"),
        ("sessions take turns", "a0f a1f a2f b0f c0f", "", 4, "a0f b0f c0f a1f"),
        ("no partial while a final waits", "a0p b0f b1f", "c0f", 2, "b0f"),
        ("one partial joins at a time", "a0p b0p c0p", "", 4, "a0p"),
        ("a partial leaves the last slot free", "c0p", "a0p b0p", 3, ""),
        ("... also with finals beside it", "a0p b0f", "c0f", 3, "b0f"),
        ("... but not where there is only one", "a0p b0p", "", 1, "a0p"),
        ("a final takes the last slot", "a0f", "b0f c0p", 3, "a0f"),
        ("the newest partial alone is decoded", "a0p a0p a1p", "", 4, "a1p"),
        ("it keeps its predecessor's place", "a0p b0p a1p", "", 2, "a1p"),
        ("its utterance's final drops it", "a0p a0f", "", 4, "a0f"),
        ("a later utterance's final drops it, too", "a0p a1f", "", 4, "a1f"),
        ("an earlier utterance's final does not", "a1p a0f", "", 4, "a0f a1p"),
        ("an early final goes before partials", "a0p b0p c0e", "", 4, "c0e"),
        ("but not before finals", "a0e b0f", "", 2, "b0f"),
        ("it takes the place of its session's partial", "a0p a0e", "", 4, "a0e"),
        ("its utterance's final drops it", "a0e a0f", "", 4, "a0f"),
        ("speech that goes on drops it", "a0e a0p", "", 4, "a0p"),
        ("it waits for its session's running partial", "a0e b0p", "a0p", 4, "b0p"),
        ("another session's final does not", "a0p b0f", "", 4, "b0f a0p"),
        ("a session has one running partial", "a1p b0p", "a0p", 4, "b0p"),
        ("a running final does not count as one", "a1p", "a0f", 4, "a1p"),
        ("no slot, no work", "a0f b0p", "c0f d0f", 2, ""),
        ("nothing queued, nothing taken", "", "", 4, ""),
        ("files come last", "a0x b0p c0f", "", 4, "c0f b0p"),
        ("one of them joins", "a0x b0x", "", 4, "a0x"),
        ("... where none runs", "a0x", "b0x", 4, ""),
        ("... beside what is live", "a0x", "b0f c0p", 4, "a0x"),
        ("they leave the last slot free", "a0x", "b0f c0f", 3, ""),
        ("... but not where there is only one", "a0x", "", 1, "a0x"),
        ("no file while a final waits", "a0x b0f c0f", "d0f", 2, "b0f"),
    ],
)
def test_policy(rule: str, queued: str, running: str, slots: int, taken: str) -> None:
    """Each line is one sentence of the policy in the scheduler's docstring."""
    request_queue = RequestQueue()
    for name in queued.split():
        request_queue.put(work(name))
    assert (
        names(request_queue.take([work(name) for name in running.split()], slots, now=0.0))
        == taken.split()
    ), rule


class BacklogMachine(RuleBasedStateMachine):
    """Any order of events: nothing lost but partials, bounds kept, finals in order, no starvation."""

    sessions = st.sampled_from("abcd")

    def __init__(self) -> None:
        super().__init__()
        self.request_queue = RequestQueue()
        self.running: list[Work] = []
        self.awaited: list[Work] = []  # finals put and not yet taken
        self.retried: list[Work] = []  # finals of failed rounds, not yet taken
        self.utterance = 0

    @rule(session=sessions, final=st.booleans())
    def put(self, session: str, final: bool) -> None:
        self.utterance += 1
        request = Request(np.zeros(2, np.float32))
        item = Work(session, self.utterance, final, request, lambda *_: None)
        self.request_queue.put(item)
        if final:
            self.awaited.append(item)

    @rule()
    def take(self) -> None:
        before = len(self.running)
        alone = any(item.alone for item in self.running)
        taken = self.request_queue.take(self.running, SLOTS, now=0.0)
        self.running += taken
        if alone:
            assert not taken, "company for one that is tried alone"
            return
        if self.retried:
            next_one = [] if before else self.retried[:1]
            assert [item.utterance for item in taken] == [item.utterance for item in next_one]
            del self.retried[: len(taken)]
            return
        assert len(self.running) <= SLOTS
        finals = [item for item in taken if item.final]
        assert taken[: len(finals)] == finals
        for item in finals:
            earlier = [other for other in self.awaited if other.session == item.session]
            assert earlier[0] is item, "finals of a session in order"
            self.awaited.remove(item)
        if len(finals) < len(taken):
            assert not self.awaited, "a partial joined while a final waited"
            assert len(self.running) < SLOTS, "a partial took the last free slot"
        if self.awaited:
            assert len(self.running) == SLOTS, "a final waits beside a free slot"
        if before == 0 and len(self.request_queue):
            assert taken, "idle with work at hand"
        partials = [item.session for item in self.running if not item.final]
        assert len(partials) == len(set(partials)), "two running partials of one session"

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.running:
            self.running.remove(data.draw(st.sampled_from(self.running)))

    @rule()
    def fail(self) -> None:
        self.request_queue.retry(self.running)
        self.retried += [item for item in self.running if item.final]
        self.running = []

    @rule(session=sessions)
    def drop(self, session: str) -> None:
        self.request_queue.drop(session)
        self.awaited = [item for item in self.awaited if item.session != session]
        self.retried = [item for item in self.retried if item.session != session]

    @invariant()
    def bounded(self) -> None:
        finals = [*self.awaited, *self.retried]
        assert len(finals) <= len(self.request_queue) <= len(finals) + 4
        oldest = min((item.submitted for item in finals), default=None)
        assert self.request_queue.oldest_final == oldest


TestBacklog = BacklogMachine.TestCase


def test_where_partials_may_not_join_finals_still_do() -> None:
    request_queue = RequestQueue()
    request_queue.put(work("a0p"))
    assert request_queue.take([], 4, now=0.0, partials=False) == []
    request_queue.put(work("b0f"))
    assert names(request_queue.take([], 4, now=0.0, partials=False)) == ["b0f"]
    assert names(request_queue.take([], 4, now=0.0)) == ["a0p"]


def test_a_turn_is_waited_for_from_the_last_one_on() -> None:
    """A file of twenty utterances does not make a newcomer's prospects worse than they are."""
    request_queue = RequestQueue()
    assert request_queue.oldest_turn is None
    for name in ("a0f", "a1f", "a2f"):
        request_queue.put(replace(work(name), submitted=10.0))
    assert request_queue.oldest_turn == 10.0
    request_queue.take([], 1, now=30.0)
    assert request_queue.oldest_turn == 30.0
    request_queue.put(replace(work("b0f"), submitted=20.0))
    assert request_queue.oldest_turn == 20.0
    request_queue.drop("b")
    request_queue.take([], 2, now=40.0)
    assert request_queue.oldest_turn is None


def request(samples: int = 1600, **asked: Any) -> Request:
    return Request(np.zeros(samples, np.float32), **asked)


@pytest.mark.parametrize(
    ("final", "served"),
    [
        (("a", 0, request()), True),
        (("b", 0, request()), False),
        (("a", 1, request()), False),
        (("a", 0, request(samples=1601)), False),  # speech has gone on
        (("a", 0, request(prefix="so")), False),  # more has been promised meanwhile
        (("a", 0, request(prompt="so")), False),
        (("a", 0, request(language="de")), False),  # it has been learnt meanwhile
        (("a", 0, request(language_hint="de")), False),
    ],
)
def test_early_finals_serve_same_requests(final: tuple[str, int, Request], served: bool) -> None:
    session, utterance, asked = final
    early = Work("a", 0, False, request(), lambda *_: None, early=True)
    assert early.serves(Work(session, utterance, True, asked, lambda *_: None)) is served
    partial = replace(early, early=False)
    assert not partial.serves(Work("a", 0, True, request(), lambda *_: None))


def test_partials_take_a_quarter_of_the_time_while_finals_run() -> None:
    """As long as none does they join whenever they like."""
    partial_throttle, final = PartialThrottle(), [work("a0f")]
    assert partial_throttle.allows(0.0, final)
    partial_throttle.joined(1.0, 1.5)
    assert partial_throttle.allows(1.5, [])
    assert partial_throttle.allows(1.5, [work("b0p")])
    assert not partial_throttle.allows(2.9, final)
    assert partial_throttle.allows(3.0, final)
