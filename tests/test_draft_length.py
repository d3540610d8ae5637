import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.drafting.draft_length import DraftLength

VERIFY = {1: {0: 20.0, 1: 21.0, 2: 22.0, 4: 24.0, 8: 27.0}, 8: {0: 30.0, 8: 90.0}}
DRAFT = {1: dict.fromkeys((1, 2, 4, 8), 2.0), 8: {8: 10.0}}


def draft_length(share: float) -> DraftLength:
    return DraftLength(VERIFY, DRAFT, [share] * 8)


def test_a_good_drafter_gets_long_blocks_and_a_bad_one_none() -> None:
    """Expected tokens over measured time decide, for each number of rows."""
    assert draft_length(0.95).choose(1) == 8
    assert 0 < draft_length(0.5).choose(1) < 8
    assert draft_length(0.02).choose(1) == 0
    # A batch of eight leaves less idle capacity: the same drafter no longer pays.
    assert draft_length(0.5).choose(8) == 0


def test_a_drafter_that_takes_a_step_a_token_gets_shorter_blocks() -> None:
    """What drafting costs counts for each k of its own."""
    steps = {1: {k: 2.0 * k for k in (1, 2, 4, 8)}, 8: {8: 16.0}}
    assert 0 < DraftLength(VERIFY, steps, [0.8] * 8).choose(1) < draft_length(0.8).choose(1)


def test_rows_between_two_measured_counts_take_the_larger() -> None:
    assert draft_length(0.5).choose(5) == draft_length(0.5).choose(8)


def test_acceptance_is_learned_and_recovers() -> None:
    """Nothing accepted: plain passes; accepted again: blocks again."""
    learner = draft_length(0.9)
    for _ in range(400):
        learner.learn(8, 0)
    assert not learner.choose(1)
    for _ in range(20_000):
        k = learner.choose(1)
        if k:
            learner.learn(k, k)
    assert learner.choose(1) >= 4


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), max_size=60))
def test_any_history_gives_a_measured_choice(history: list[tuple[int, int]]) -> None:
    learner = draft_length(0.5)
    for proposed, accepted in history:
        learner.learn(proposed, min(accepted, proposed))
        assert learner.choose(1) in VERIFY[1]
        assert learner.choose(8) in VERIFY[8]


@pytest.mark.parametrize("rows", [9, 100])
def test_more_rows_than_measured_are_our_own_mistake(rows: int) -> None:
    with pytest.raises(ValueError, match=r"min|empty"):
        draft_length(0.5).choose(rows)


def test_tries_cost_little_however_long_a_block_takes() -> None:
    """Where nothing is ever accepted: 3 % of plain rounds at most, for any number of rows."""
    for rows, times in VERIFY.items():
        learner = draft_length(0.9)
        for _ in range(400):
            learner.learn(8, 0)
        spent = 0.0
        for _ in range(2000):
            if k := learner.choose(rows):
                spent += times[k] + DRAFT[rows][k] - times[0]
                learner.learn(k, 0)
        assert 0 < spent < 0.03 * 2000 * times[0]
