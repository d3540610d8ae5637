"""The building part of the benchmark of turns, and its counting, on made sentences."""

import random
from itertools import pairwise

import numpy as np
import pytest

from tests.benchmarks.bench_turns import Score, aligned, plain_words, requests_of
from tests.support.audio import needs_audio
from tests.support.turns import (
    FADE,
    GAP_S,
    MOST_S,
    Sentence,
    by_speaker,
    english_turns,
    faded,
    join,
    mixed_turns,
    of_language,
    of_readers,
    trimmed,
)

RATE = 16_000


def sentence(speaker: str, number: int, seconds: float = 2.0, language: str = "en") -> Sentence:
    level = 0.1 + 0.1 * number
    audio = np.full(round(seconds * RATE), level, np.float32)
    return Sentence(f"{speaker}/{number}", speaker, language, f"{speaker} {number}", audio)


READERS = by_speaker([sentence(name, n) for name in "abc" for n in range(3)])


def test_sentences_lie_where_the_spans_say() -> None:
    parts = [sentence("a", 1, 1.5), sentence("b", 3, 2.0), sentence("a", 5, 1.0)]
    turns = join("t", parts, random.Random(1))
    assert turns.texts == ["a 1", "b 3", "a 5"]
    for part, (start, stop) in zip(parts, turns.spans, strict=True):
        np.testing.assert_array_equal(turns.audio[start:stop], faded(part.audio))
    assert turns.spans[0][0] == 0.3 * RATE
    assert len(turns.audio) - turns.spans[-1][1] == 0.2 * RATE
    for gap, (_, stop), (start, _) in zip(
        turns.gaps, turns.spans[:-1], turns.spans[1:], strict=True
    ):
        assert GAP_S[0] <= gap <= GAP_S[1]
        assert start - stop == round(gap * RATE)
        assert np.abs(turns.audio[stop:start]).max() < 0.01


@pytest.mark.parametrize("count", [2, 3])
def test_neighbours_differ_and_nobody_says_the_same_twice(count: int) -> None:
    for n in range(20):
        turns = of_readers(READERS, count, f"t-{n}", 13)
        speakers = [part.speaker for part in turns.sentences]
        assert all(a != b for a, b in pairwise(speakers))
        assert len(set(turns.texts)) == count


def test_a_name_and_a_seed_decide() -> None:
    first, again, other = (of_readers(READERS, 2, "t", seed) for seed in (13, 13, 14))
    np.testing.assert_array_equal(first.audio, again.audio)
    assert (first.texts, first.gaps) == (again.texts, again.gaps)
    assert (first.texts, first.gaps) != (other.texts, other.gaps)


def test_no_utterance_reaches_the_cap() -> None:
    readers = by_speaker([sentence(name, n, 4.0 + 3 * n) for name in "abc" for n in range(3)])
    for n in range(20):
        assert len(of_readers(readers, 3, f"t-{n}", 13).audio) <= MOST_S * RATE


def test_three_words_make_a_mandarin_sentence() -> None:
    words = [sentence("z", n, 0.5, "zh") for n in range(5)]
    made = of_language("zh", words, random.Random(1))
    assert len(made.audio) == 3 * 0.5 * RATE
    assert made.name.count("+") == 2
    assert of_language("en", words[:1], random.Random(1)) is words[0]


def test_clips_begin_and_end_without_a_click() -> None:
    audio = np.ones(RATE, np.float32)
    soft = faded(audio)
    assert soft[0] == soft[-1] == 0
    assert (soft[FADE:-FADE] == 1).all()
    assert (audio == 1).all()


def test_silence_around_speech_is_cut_off() -> None:
    audio = np.zeros(RATE, np.float32)
    audio[4_000:9_600] = 0.5
    assert len(trimmed(audio)) == 5_600


@needs_audio
def test_the_first_ones_stay_whatever_the_limit() -> None:
    two, three = english_turns(2, 2), english_turns(3, 2)
    assert [one.texts for one in two] == [one.texts for one in three[:2]]
    (pair, *_) = mixed_turns(1)
    assert pair.languages == ("de", "en")


def test_deletions_and_hits_are_counted_by_sentence() -> None:
    references = [["one", "two", "three"], ["four", "five"]]
    assert aligned(references, ["one", "two", "three"]) == ([0, 2], [3, 0], 0, 0)
    assert aligned(references, ["four", "five"]) == ([3, 0], [0, 2], 0, 0)
    whole = ["one", "too", "three", "four", "so", "five"]
    assert aligned(references, whole) == ([0, 0], [2, 2], 1, 1)
    assert aligned(references, []) == ([3, 2], [0, 0], 0, 0)


def test_a_sentence_is_lost_with_more_than_half_of_its_words() -> None:
    score = Score()
    score.add("half", ["a b c d", "e f"], "a b e f")
    score.add("gone", ["a b c d", "e f"], "a e f")
    score.add("all", ["a b", "e f"], "a b e f g")
    figures = score.figures()
    assert (figures["sentences"], figures["lost"], figures["losers"]) == (6, 1, ["gone"])
    assert (figures["words"], figures["deleted"], figures["inserted"]) == (16, 5, 1)
    assert figures["wer_percent"] == 37.5
    assert figures["found_percent"] == round(100 * 5 / 6, 1)


def test_words_of_any_language() -> None:
    assert plain_words("¿Qué? It's 你好。") == "qué it's 你 好"


def test_silence_asks_for_nothing() -> None:
    assert requests_of(np.zeros(RATE, np.float32), "en") == []
