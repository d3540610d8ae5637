import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.engine.fallback import (
    COPIES,
    COVERED,
    compression_ratio,
    failed,
    is_silence,
    repetition_start,
)

WORDS = st.lists(st.integers(0, 30), max_size=60)


@given(WORDS, st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(0, 19))
def test_a_loop_is_found_however_it_begins_and_wherever_it_stops(
    before: list[int], copy: list[int], rest: int
) -> None:
    """What is kept ends within the first copy, and holds all that was said before it."""
    copies = max(COPIES, -(-COVERED // len(copy)))
    tokens = before + copy * copies + copy[: rest % len(copy)]
    start = repetition_start(tokens)
    assert start is not None
    assert start <= len(before) + len(copy)
    period = min(p for p in range(1, len(copy) + 1) if tokens[start:] == tokens[start - p : -p])
    assert tokens[start - period : start] * COPIES == tokens[start - period :][: COPIES * period]


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=120))
def test_what_repeats_nothing_is_no_loop(tokens: list[int]) -> None:
    assert repetition_start(tokens) is None


@pytest.mark.parametrize(
    "said", [[7] * (COVERED - 1), list(range(10)) * (COPIES - 1), [1, 2] * 15 + [3]]
)
def test_what_people_say_several_times_is_no_loop(said: list[int]) -> None:
    """Thirty times "no", a refrain of three lines, and what has come to an end."""
    assert repetition_start(said) is None


def test_compression_is_that_of_the_reference() -> None:
    """len(bytes) / len(zlib.compress(bytes)), as openai/whisper computes it."""
    assert compression_ratio("") == 0.0
    assert compression_ratio("ab") == pytest.approx(2 / 10)
    assert compression_ratio("the same again " * 20) > 2.4
    assert compression_ratio("I really like that account of himself, better than any.") < 1.2


@pytest.mark.parametrize(
    ("logprob", "no_speech", "text", "again", "silence"),
    [
        (-0.5, 0.9, "yes", False, False),  # sure of its words, whatever the start token says
        (-1.1, 0.5, "yes", True, False),
        (-1.1, 0.7, "yes", False, True),
        (-0.1, 0.0, "ha " * 60, True, False),
        (-0.99, 0.0, "yes", False, False),
    ],
)
def test_thresholds_are_those_of_the_reference(
    logprob: float, no_speech: float, text: str, again: bool, silence: bool
) -> None:
    assert failed(text, logprob, no_speech) is again
    assert is_silence(no_speech, logprob) is silence
