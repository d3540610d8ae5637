from hypothesis import given
from hypothesis import strategies as st

from streaming.protocol import Flushed
from streaming.reorder import ReorderBuffer


@given(st.permutations(range(6)))
def test_finals_leave_in_order_whatever_order_they_come_in(order: list[int]) -> None:
    buffer = ReorderBuffer[str]()
    left = [message for number in order for message in buffer.settle(number, [str(number)])]
    assert left == [str(number) for number in range(6)]
    assert buffer.released == 6


def test_a_flush_is_answered_behind_the_finals_before_it() -> None:
    """Of two that wait for the same finals the later one is."""
    buffer = ReorderBuffer[str]()
    assert buffer.flush(0, Flushed(at=0.0)) == [Flushed(at=0.0)]
    assert buffer.flush(2, Flushed(at=1.0)) == []
    assert buffer.flush(2, Flushed(at=2.0)) == []
    assert buffer.settle(1, ["one"]) == []
    assert buffer.settle(0, ["zero"]) == ["zero", "one", Flushed(at=2.0)]
