from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming.speech_spans import SpeechSpans

FRAMES = st.lists(st.booleans(), max_size=60)


@given(FRAMES, st.integers(0, 600), st.integers(0, 600), st.integers(0, 600))
def test_spans_are_the_frames_of_speech(
    frames: list[bool], before: int, start: int, length: int
) -> None:
    """Whatever was given up before: within what is kept, every sample is in a span or in none."""
    spans = SpeechSpans()
    for n, speech in enumerate(frames):
        if speech:
            spans.add(10 * n, 10 * n + 10)
    start, stop = max(start, before), max(start, before) + length
    spans.forget(before)
    wanted = np.repeat(np.array([*frames, *[False] * 120], np.bool_), 10)[start:stop]
    found = np.zeros(length, np.bool_)
    within = spans.within(start, stop)
    for a, b in within:
        assert 0 <= a < b <= length
        found[a:b] = True
    assert (found == wanted).all()
    assert all(b < c for (_, b), (c, _) in pairwise(within))


def test_what_ended_before_is_given_up() -> None:
    spans = SpeechSpans()
    spans.add(0, 10)
    spans.add(20, 30)
    spans.forget(10)
    assert spans.within(0, 100) == ((20, 30),)
