import torch
from hypothesis import given
from hypothesis import strategies as st

from model.training.score import Score, combined, walk


def test_a_walk_by_hand() -> None:
    """Two accepted and one of the target's own; none and one; then the end, which is accepted."""
    matches = torch.tensor(
        [[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]], dtype=torch.bool
    )
    assert walk(matches) == Score(proposed=(3, 3, 3), accepted=(2, 0, 2), emitted=(3, 1, 2))


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=30))
def test_a_walk_emits_every_token_once(rows: list[list[bool]]) -> None:
    matches = torch.tensor(rows)
    for place in range(len(rows)):  # nothing lies behind the end
        matches[place, len(rows) - place :] = False
    score = walk(matches)
    assert score.tokens == len(rows)
    own = score.tokens - sum(score.accepted)
    assert score.rounds - 1 <= own <= score.rounds, "each round but the last adds one"


def test_figures_follow_from_the_counts() -> None:
    """α of all that was proposed, τ of all that was emitted."""
    score = combined([Score((3, 3, 3), (3, 1, 2), (4, 2, 2)), Score((3,), (0,), (1,))])
    assert score.rounds == 4
    assert score.tau == 2.25
    assert score.alpha == 0.5
    assert score.acceptance(3) == (0.75, 2 / 3, 1.0)
    assert combined([]).acceptance(2) == (0.0, 0.0)
