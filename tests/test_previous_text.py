import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from model.drafting.previous_text import PreviousText

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
    reuse = PreviousText(draft)
    for done in range(len(draft)):
        assert reuse.propose(100) == draft[done:]
        reuse.observe(draft[done : done + 1])
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
        reuse = PreviousText(draft)
        reuse.observe(emitted)
        assert reuse.propose(100) == rest


@settings(deadline=None)
@given(TEXT, TEXT, st.integers(0, 30))
def test_the_place_is_the_best_aligned(draft: list[int], emitted: list[int], limit: int) -> None:
    """No other beginning of the draft is nearer to what was emitted; the limit is kept."""
    reuse = PreviousText(draft)
    reuse.observe(emitted[:3])
    reuse.observe(emitted[3:])
    proposal = reuse.propose(1000)
    chosen = draft[: len(draft) - len(proposal)]
    assert proposal == draft[len(chosen) :]
    best = min(distance(emitted, draft[:k]) for k in range(len(draft) + 1))
    assert distance(emitted, chosen) == best
    assert reuse.propose(limit) == proposal[:limit]


def test_a_draft_that_fits_nowhere_falls_silent_for_a_while() -> None:
    """One miss is a repaired word; after the next it says nothing for 1, 3, 7 … rounds: few are lost."""
    reuse = PreviousText(range(1, 40))
    silent = []
    for _ in range(60):
        proposal = reuse.propose(1)
        silent.append(not proposal)
        reuse.observe([99])
    assert silent[:12] == [False, False, True, False, True, True, True, False, *[True] * 4]
    assert silent.count(False) <= 7
