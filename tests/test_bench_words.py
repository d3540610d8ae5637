"""What the benchmarks count as lost, added, and beside a seam; and which samples they call voiced."""

import numpy as np
import pytest

from streaming.protocol import Final
from tests.benchmarks.bench_service import first_minutes, utterances
from tests.benchmarks.bench_stream import FRAME, voiced_range
from tests.benchmarks.bench_words import Alignment, retracted
from tests.support.audio import ROOT, Recording
from tests.support.standin import final


def slips(reference: str, *pieces: str) -> list[tuple[str, str]]:
    """Kind and word of each slip at a seam; pieces of the hypothesis are separated by the seams."""
    return [(one.kind, one.word) for one in Alignment.of([reference], pieces).at_seams()]


@pytest.mark.parametrize(
    ("reference", "pieces", "wanted"),
    [
        ("a b c d", ("a b", "c d"), []),
        ("a b c d", ("a b", "d"), [("lost", "c")]),
        ("a b c d", ("a", "d"), [("lost", "b"), ("lost", "c")]),
        ("a b c d", ("a b", "b c d"), [("added", "b")]),
        ("a b c d", ("a b c", "b c d"), [("added", "b"), ("added", "c")]),
        ("a b c d", ("a x", "c d"), []),  # a wrong word is neither lost nor added
        ("a b c d e f", ("a c d", "e f"), []),  # lost, but within one piece
        ("a b c d", ("a x b c", "d"), []),
        ("a b c d", ("a b", "", "d"), [("lost", "c")]),
        ("a b c", ("b c",), []),  # the beginning and the end of all are no seams
        ("a b c", ("a b c d",), []),
    ],
)
def test_slips_at_seams(
    reference: str, pieces: tuple[str, ...], wanted: list[tuple[str, str]]
) -> None:
    assert slips(reference, *pieces) == wanted


def test_a_run_that_touches_a_seam_counts_whole() -> None:
    reference = "a b c d e f g h i j"
    assert slips(reference, "a b", "f j") == [("lost", "c"), ("lost", "d"), ("lost", "e")]


def test_the_same_slip_is_known_again() -> None:
    """Whichever of two equal words counts as added; not another word, place or kind."""
    cut = Alignment.of(["a b c d e f"], ["a b", "b c d e f"])
    (slip,) = cut.at_seams()
    assert Alignment.of(["a b c d e f"], ["a b b c d e f"]).has(slip)
    assert not Alignment.of(["a b c d e f"], ["a b c d e b f"]).has(slip)
    assert not Alignment.of(["a b c d e f"], ["a x b c d e f"]).has(slip)
    assert not Alignment.of(["a b c d e f"], ["a c d e f"]).has(slip)


def test_context_shows_both_texts_and_the_seam() -> None:
    alignment = Alignment.of(["one two three four"], ["one two", "four"])
    (slip,) = alignment.at_seams()
    assert alignment.context(slip) == {
        "kind": "lost",
        "word": "three",
        "reference": "one two three four",
        "hypothesis": "one two | four",
    }


def test_voiced_samples_are_those_near_the_loudest() -> None:
    """35 dB below the loudest is voiced no more; a tail shorter than a frame is silence."""
    levels_db = [-60, -50, 0, -30, -34, -36, -60]
    frames = [np.full(FRAME, 10 ** (level / 20), np.float32) for level in levels_db]
    audio = np.concatenate([*frames, np.ones(FRAME - 1, np.float32)])
    assert voiced_range(audio) == (2 * FRAME, 5 * FRAME - 1)


def utterance(start: float, end: float) -> Final:
    return final("word", start, end)


def test_only_long_utterances_that_meet_the_next_were_cut() -> None:
    """The default cap is 30 s, its cut lies within the last 5 s."""
    finals = [
        utterance(0.0, 27.0),
        utterance(27.0, 32.0),  # meets the next by chance
        utterance(32.0, 59.0),  # long, but a pause follows
        utterance(60.0, 61.0),
    ]
    figures = utterances(finals)
    assert (figures["forced_cuts"], figures["cuts_at_s"]) == (1, [27.0])


@pytest.mark.parametrize(("minutes", "count"), [(None, 3), (1.0, 2), (0.9, 1), (0.1, 1)])
def test_the_chapter_is_shortened_by_whole_clips(minutes: float | None, count: int) -> None:
    clips = [Recording(ROOT / str(n), 30.0, "test", "en", "", "") for n in range(3)]
    assert first_minutes(clips, minutes) == clips[:count]


@pytest.mark.parametrize(
    ("shown", "counted"),
    [
        (("the cat", "the cat sat", "The cat sat."), (0, 9)),
        (("the cat", "the dog"), (3, 9)),
        (("the cat", "the"), (3, 6)),
        (("and they say", "There's iron, they say"), (3, 21)),
        ((), (0, 0)),
    ],
)
def test_characters_taken_back_are_those_of_words_that_changed(
    shown: tuple[str, ...], counted: tuple[int, int]
) -> None:
    assert retracted(shown) == counted
