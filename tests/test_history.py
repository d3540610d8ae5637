import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.history import MOST, History
from streaming.protocol import Final, ServerMessage, Speech
from tests.standin import final


def speech(utterance: int) -> Speech:
    return Speech(event="start", utterance=utterance, at=0.0)


def told(finals: int) -> tuple[History, list[ServerMessage]]:
    history, messages = History(), list[ServerMessage]()
    for number in range(finals):
        messages += [speech(number), final(str(number), utterance=number)]
    for message in messages:
        history.add(message)
    return history, messages


@given(st.integers(0, 20), st.data())
def test_what_came_after_a_final_is_known(finals: int, data: st.DataObject) -> None:
    """Neither more nor less, and in order."""
    history, messages = told(finals)
    history.add(speech(finals))
    known = data.draw(st.integers(0, finals))
    assert history.after(known) == [*messages[2 * known :], speech(finals)]
    assert history.finals == finals


def test_finals_that_have_not_been_are_not_known() -> None:
    history, _ = told(2)
    with pytest.raises(LookupError):
        history.after(3)


def test_the_oldest_is_forgotten() -> None:
    """Memory is bounded; whoever knows less than what is left cannot be helped."""
    history, messages = told(MOST)
    assert len(history._messages) == MOST
    assert history.after(MOST - 3) == messages[-6:]
    with pytest.raises(LookupError):
        history.after(3)
    assert sum(isinstance(one, Final) for one in history.after(MOST // 2)) == MOST // 2
