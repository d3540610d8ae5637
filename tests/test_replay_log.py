import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.sessions.replay_log import MOST, ReplayLog
from streaming.protocol import Configured, Final, Flushed, ServerMessage, Speech
from tests.support.standin import final


def speech(utterance: int) -> Speech:
    return Speech(event="start", utterance=utterance, at=0.0)


def told(finals: int) -> tuple[ReplayLog, list[ServerMessage]]:
    replay_log, messages = ReplayLog(), list[ServerMessage]()
    for number in range(finals):
        messages += [speech(number), final(str(number), utterance=number)]
    for message in messages:
        replay_log.add(message)
    return replay_log, messages


@given(st.integers(0, 20), st.data())
def test_what_came_after_a_final_is_known(finals: int, data: st.DataObject) -> None:
    replay_log, messages = told(finals)
    replay_log.add(speech(finals))
    known = data.draw(st.integers(0, finals))
    assert replay_log.after(known) == [*messages[2 * known :], speech(finals)]
    assert replay_log.finals == finals


def test_the_oldest_is_forgotten() -> None:
    """Memory is bounded; whoever knows less than what is left cannot be helped."""
    replay_log, messages = told(MOST)
    assert len(replay_log) == MOST
    assert replay_log.after(MOST - 3) == messages[-6:]
    with pytest.raises(LookupError):
        replay_log.after(3)
    assert sum(isinstance(one, Final) for one in replay_log.after(MOST // 2)) == MOST // 2


@pytest.mark.parametrize("answer", [Flushed, Configured])
def test_of_answers_in_a_row_the_last_says_all(answer: type[Flushed | Configured]) -> None:
    """A client that flushes all the time in silence drives out no final."""
    replay_log, messages = told(1)
    for at in range(2 * MOST):
        replay_log.add(answer(at=float(at)))
    assert replay_log.after(0) == [*messages, answer(at=2.0 * MOST - 1)]
    replay_log.add(speech(1))
    replay_log.add(answer(at=2.0 * MOST))
    answers = answer(at=2.0 * MOST - 1), answer(at=2.0 * MOST)
    assert replay_log.after(1) == [answers[0], speech(1), answers[1]]


def test_where_nobody_may_come_back_finals_are_counted_alone() -> None:
    replay_log = ReplayLog(kept=False)
    for number in range(3):
        replay_log.add(speech(number))
        replay_log.add(final(str(number), utterance=number))
    replay_log.add(Flushed(at=3.0))
    assert len(replay_log) == 0
    assert replay_log.finals == 3
    assert replay_log.after(3) == []
    for known in range(3):
        with pytest.raises(LookupError):
            replay_log.after(known)
