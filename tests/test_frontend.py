import numpy as np
import pytest

from streaming.frontend import FrontEnd
from streaming.protocol import ProtocolError, Start
from streaming.segmenter import Began, Ended
from streaming.settings import Settings
from tests.support.streams import RATE, Loudness, loud, quiet, s16


def front_end(**start: object) -> FrontEnd:
    return FrontEnd(Start(**start), Settings(), Loudness())  # type: ignore[arg-type]  # any fields


def test_frames_are_judged_in_order_half_a_second_at_a_time() -> None:
    front = front_end()
    front.take(s16(quiet(0.3), loud(0.9)))
    judged = []
    while front.unread:
        judged += list(front.read())
        assert front.segmenter.position <= (len(judged) + 1) * Loudness.frame
    assert [speech for _, speech in judged] == [False] * 10 + [True] * 30
    assert [event for events, _ in judged for event in events] == [Began(0, 10 * Loudness.frame)]


def test_the_end_takes_what_is_unread_and_less_than_a_frame() -> None:
    front = front_end()
    audio = loud(1.005)
    front.take(s16(audio))
    events = [event for events, _ in front.finish(last=True) for event in events]
    assert isinstance(events[-1], Ended)
    assert events[-1].stop == front.received == len(audio) == round(1.005 * RATE)
    assert not front.unread


def test_what_is_refused_is_counted() -> None:
    front = front_end(encoding="f32le")
    with pytest.raises(ProtocolError, match="NaN"):
        front.take(np.array([0.5, np.nan], "<f4").tobytes())
    assert front.received == front.account(finals=0).refused == 2
