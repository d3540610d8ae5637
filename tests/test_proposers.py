import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.proposers import Reuse, Simulated, chance_for, spliced

TEXT = st.lists(st.integers(0, 5), max_size=25)


def distance(a: list[int], b: list[int]) -> int:
    """Edit distance by the textbook."""
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    table[:, 0], table[0] = range(len(a) + 1), range(len(b) + 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1, j + 1] = min(
                table[i, j + 1] + 1, table[i + 1, j] + 1, table[i, j] + (x != y)
            )
    return int(table[-1, -1])


@given(TEXT)
def test_a_right_draft_is_proposed_whole_and_once(draft: list[int]) -> None:
    """Without a mismatch the proposal is always the rest."""
    reuse = Reuse(draft)
    for done in range(len(draft)):
        assert reuse.propose(100) == draft[done:]
        reuse.emit(draft[done : done + 1])
    assert reuse.propose(100) == []


def test_one_word_changed_is_stepped_over() -> None:
    """Substituted, inserted, deleted: the proposal goes on behind it."""
    draft = [1, 2, 3, 4, 5, 6, 7, 8]
    for emitted, rest in (
        ([1, 2, 9], [4, 5, 6, 7, 8]),
        ([1, 2, 9, 3, 4], [5, 6, 7, 8]),
        ([1, 2, 4, 5], [6, 7, 8]),
        ([9, 8, 3, 4], [5, 6, 7, 8]),
    ):
        reuse = Reuse(draft)
        reuse.emit(emitted)
        assert reuse.propose(100) == rest


@settings(deadline=None)
@given(TEXT, TEXT, st.integers(0, 30))
def test_the_place_is_the_best_aligned(draft: list[int], emitted: list[int], limit: int) -> None:
    """No other beginning of the draft is nearer to what was emitted; the limit is kept."""
    reuse = Reuse(draft)
    reuse.emit(emitted[:3])
    reuse.emit(emitted[3:])
    proposal = reuse.propose(1000)
    chosen = draft[: len(draft) - len(proposal)]
    assert proposal == draft[len(chosen) :]
    best = min(distance(emitted, draft[:k]) for k in range(len(draft) + 1))
    assert distance(emitted, chosen) == best
    assert reuse.propose(limit) == proposal[:limit]


@given(st.lists(st.integers(1, 50), unique=True, min_size=3), st.integers(0, 20))
def test_a_reading_goes_on_behind_what_was_said(text: list[int], said: int) -> None:
    """Of the same words nothing is lost or doubled, whether the hypothesis had ended or not."""
    whole = [*text, 0]
    assert spliced(text[:said], whole, eot=0) == whole
    assert spliced([*text[:said], 0], whole, eot=0) == whole


def test_what_was_said_outweighs_a_reading_of_it() -> None:
    """But for its last two tokens, where the audio broke off."""
    assert spliced([1, 2, 3, 4, 98, 99], [1, 7, 3, 4, 5, 6, 8, 0], eot=0) == [
        1,
        2,
        3,
        4,
        5,
        6,
        8,
        0,
    ]


def test_a_draft_that_fits_nowhere_falls_silent_for_a_while() -> None:
    """One miss is a repaired word; after the next it says nothing for 1, 3, 7 … rounds."""
    reuse = Reuse(range(1, 40))
    silent = []
    for _ in range(12):
        proposal = reuse.propose(1)
        silent.append(not proposal)
        reuse.emit([99])
    assert silent == [False, False, True, False, True, True, True, False, *[True] * 4]


@given(TEXT, st.integers(1, 8), st.floats(0, 1), st.integers(0, 9))
def test_a_pretended_drafter_fills_its_blocks(
    truth: list[int], block: int, chance: float, limit: int
) -> None:
    """Silent before the first token; then full blocks, behind the end of the truth, too."""
    drafter = Simulated(truth, chance, block)
    assert drafter.propose(limit) == []
    for token in truth:
        drafter.emit([token])
        assert len(drafter.propose(limit)) == min(limit, block)


def test_a_pretended_drafter_errs_at_its_rate() -> None:
    """Always right, never right, and about as often as it should be."""
    truth = list(range(1, 2002))
    for chance, low, high in ((0.0, 0, 0), (0.87, 1690, 1790), (1.0, 2000, 2000)):
        drafter = Simulated(truth, chance, block=1)
        right = 0
        for done in range(2000):
            drafter.emit(truth[done : done + 1])
            right += drafter.propose(8) == [truth[done + 1]]
        assert low <= right <= high


def test_a_wrong_token_is_never_the_right_one() -> None:
    """Token 0, too, has another."""
    drafter = Simulated([1, 0, 0, 5], chance=0.0, block=3)
    drafter.emit([1])
    assert all(a != b for a, b in zip(drafter.propose(3), [0, 0, 5], strict=True))


@given(st.floats(0, 1), st.integers(1, 8))
def test_the_chance_gives_the_share(share: float, block: int) -> None:
    """Of a block the right ones before the first wrong one are accepted."""
    chance = chance_for(share, block)
    assert sum(chance**n for n in range(1, block + 1)) / block == pytest.approx(share, abs=1e-9)
