from daemon.monitoring.totals import Totals
from streaming.protocol import DecodeFigures


def test_shares_are_nought_before_anything_was_decoded() -> None:
    assert (Totals().alpha, Totals().tau) == (0.0, 0.0)


def test_figures_add_up() -> None:
    """Each pass emits what it accepts and one token more."""
    totals = Totals()
    totals.final(DecodeFigures(rounds=2, proposed=10, accepted=6, reused=4, ms=1.0))
    totals.final(DecodeFigures(rounds=2, proposed=10, accepted=2, reused=0, ms=1.0))
    assert totals.finals == 2
    assert (totals.rounds, totals.proposed, totals.accepted, totals.reused) == (4, 20, 8, 4)
    assert totals.alpha == 0.4
    assert totals.tau == 3.0
