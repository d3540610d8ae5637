import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bench.oracle import SimulatedDrafter, chance_for

TEXT = st.lists(st.integers(0, 5), max_size=25)


@given(TEXT, st.integers(1, 8), st.floats(0, 1), st.integers(0, 9))
def test_a_pretended_drafter_fills_its_blocks(
    reference: list[int], block: int, chance: float, limit: int
) -> None:
    """Silent before the first token; then full blocks, behind the end of the reference, too."""
    drafter = SimulatedDrafter(reference, chance, block)
    assert drafter.propose(limit) == []
    for token in reference:
        drafter.observe([token])
        assert len(drafter.propose(limit)) == min(limit, block)


def test_a_pretended_drafter_errs_at_its_rate() -> None:
    """Always right, never right, and about as often as it should be."""
    reference = list(range(1, 2002))
    for chance, low, high in ((0.0, 0, 0), (0.87, 1690, 1790), (1.0, 2000, 2000)):
        drafter = SimulatedDrafter(reference, chance, block=1)
        right = 0
        for done in range(2000):
            drafter.observe(reference[done : done + 1])
            right += drafter.propose(8) == [reference[done + 1]]
        assert low <= right <= high


def test_a_wrong_token_is_never_the_right_one() -> None:
    """Token 0, too, has another."""
    drafter = SimulatedDrafter([1, 0, 0, 5], chance=0.0, block=3)
    drafter.observe([1])
    assert all(a != b for a, b in zip(drafter.propose(3), [0, 0, 5], strict=True))


@given(st.floats(0, 1), st.integers(1, 8))
def test_the_chance_gives_the_share(share: float, block: int) -> None:
    """Of a block the right ones before the first wrong one are accepted."""
    chance = chance_for(share, block)
    assert sum(chance**n for n in range(1, block + 1)) / block == pytest.approx(share, abs=1e-9)
