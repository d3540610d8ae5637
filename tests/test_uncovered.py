"""Stretches without attention, from made attention: peaks of single tokens on chosen states."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from model.whisper.uncovered import Run, cut, runs_of, stretches, uncovered, voiced_states

COUNT = 300  # states: 6 s
STATE = 320  # samples


def attention(peaks: Iterable[int], end: int | None = None) -> Tensor:
    """[2 heads, tokens + 1, COUNT]: every token attends to 12 states about its peak."""
    rows = [*peaks, COUNT - 1 if end is None else end]
    weights = torch.full((2, len(rows), COUNT), 1e-5)
    for n, peak in enumerate(rows):
        weights[:, n, max(0, peak - 6) : peak + 6] = 1 / 12
    return weights


def mask(*spans: tuple[int, int]) -> NDArray[np.bool_]:
    result = np.zeros(COUNT, np.bool_)
    for first, stop in spans:
        result[first:stop] = True
    return result


SPEECH = mask((10, 140), (160, 290))
FIRST, SECOND = range(15, 140, 10), range(165, 290, 10)


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        ([*FIRST, *SECOND], None),
        (FIRST, (160, 290)),
        (SECOND, (10, 140)),
        ([*FIRST, 165, 280], (186, 260)),
    ],
    ids=["all is covered", "tail", "head", "middle"],
)
def test_what_no_token_attends_to_is_uncovered(
    tokens: Iterable[int], wanted: tuple[int, int] | None
) -> None:
    runs = uncovered(attention(tokens)[:, :-1], SPEECH)
    assert len(runs) == (wanted is not None)
    for run in runs:
        assert wanted is not None
        # Attention is smoothed by half a second, so that it reaches 13 states on.
        assert abs(run.first - wanted[0]) <= 13
        assert abs(run.stop - wanted[1]) <= 13
        assert run.voiced == run.stop - run.first


def test_silence_needs_no_words() -> None:
    weights = attention(FIRST)[:, :-1]
    assert uncovered(weights, mask((10, 140))) == []
    assert uncovered(weights, mask()) == []


def test_a_short_turn_is_left() -> None:
    """Less than 0.6 s of voice cannot be told from weak attention; two such parts can, where they are one."""
    weights = attention(FIRST)[:, :-1]
    assert uncovered(weights, mask((10, 140), (170, 199))) == []
    assert len(uncovered(weights, mask((10, 140), (170, 201)))) == 1
    (run,) = uncovered(weights, mask((10, 140), (170, 190), (210, 235)))
    assert (run.first, run.stop, run.voiced) == (170, 235, 45)


@given(st.integers(0, 2**32 - 1), st.integers(1, 20))
def test_runs_ascend_and_hold_speech(seed: int, tokens: int) -> None:
    """Whatever the attention and the judgements."""
    dice = np.random.default_rng(seed)
    weights = torch.from_numpy(dice.dirichlet(np.full(COUNT, 0.02), (3, tokens)).astype(np.float32))
    speech = np.repeat(dice.random(COUNT // 10) < 0.7, 10)
    runs = uncovered(weights, speech)
    assert all(a.stop < b.first for a, b in pairwise(runs))
    for run in runs:
        assert 30 <= run.voiced <= speech[run.first : run.stop].sum()
        assert 0 <= run.first < run.stop <= COUNT
        first, stop = cut(run, speech, dice.random(COUNT) < 0.5, COUNT)
        assert 0 <= first < stop <= COUNT


def test_runs_of_a_mask() -> None:
    assert runs_of(mask()) == []
    assert runs_of(mask((0, 3), (298, 300))) == [(0, 3), (298, 300)]


def test_a_frame_voices_every_state_that_it_touches() -> None:
    assert np.flatnonzero(voiced_states([(0, 1), (1600, 1921)], 10)).tolist() == [0, 5, 6]
    assert voiced_states([(0, 99_999)], 3).all()


def test_cuts_lie_in_pauses() -> None:
    """In the middle of the longest near one; at the audio's edge where hardly any speech lies behind it."""
    sounding = mask((10, 140), (146, 150), (160, 290))
    assert cut(Run(164, 290, 120), SPEECH, sounding, 290) == (155, COUNT)
    assert cut(Run(10, 136, 120), SPEECH, sounding, 290) == (0, 155)
    assert cut(Run(20, 280, 200), SPEECH, sounding, 290) == (0, COUNT)
    talk = mask((0, COUNT))
    assert cut(Run(100, 200, 100), talk, talk, COUNT) == (100, 200), "no pause: where it is"


def test_a_tail_begins_where_the_text_ends_at_the_latest() -> None:
    talk = mask((0, COUNT))
    assert cut(Run(150, COUNT, 150), talk, talk, 140) == (137, COUNT)
    assert cut(Run(150, COUNT, 150), talk, talk, 200) == (150, COUNT)


@pytest.mark.parametrize(
    ("tokens", "token", "start"),
    [(FIRST, len(FIRST), 150), (SECOND, 0, 0), ([*FIRST, *range(270, 290, 3)], len(FIRST), 150)],
    ids=["tail", "head", "middle"],
)
def test_a_stretch_knows_which_tokens_come_before(
    tokens: Iterable[int], token: int, start: int
) -> None:
    speech = [(10 * STATE, 140 * STATE), (160 * STATE, 290 * STATE)]
    audio = np.zeros(COUNT * STATE, np.float32)
    for first, stop in speech:
        audio[first:stop] = 0.1
    (found,) = stretches(attention(tokens), speech, audio)
    assert found.token == token
    assert abs(found.start - start * STATE) <= 12 * STATE
    assert found.start < found.stop <= len(audio)
    assert found.voiced == pytest.approx((found.stop - found.start) / 16_000, abs=0.7)


def test_nothing_is_cut_from_complete_audio() -> None:
    audio = np.full(COUNT * STATE, 0.1, np.float32)
    assert stretches(attention(range(0, COUNT, 10)), [(0, len(audio))], audio) == ()
