import math

import numpy as np
import pytest

from model.proposers import Reuse
from model.requests import Failure, Hypothesis, Request
from model.rows import Proposal, Row
from tests.tiny import tiny_tokens

TOKENS = tiny_tokens()
AUDIO = np.zeros(100, np.float32)


def row(draft: list[int] | None = None, *, context: int = 64, prompt: str = "") -> Row:
    request = Request(AUDIO, prompt=prompt)
    one = Row(request, "en", None if draft is None else Reuse(draft))
    one.open(TOKENS, context)
    return one


@pytest.mark.parametrize("words", [0, 5, 500])
@pytest.mark.parametrize("context", [64, 448])
def test_opening_and_budget_fit_the_context(words: int, context: int) -> None:
    """The last token emitted needs no position of its own."""
    one = row(context=context, prompt="x" * words)
    assert len(one.opening) + one.budget - 1 <= context
    assert one.budget == min(context // 2, context - len(one.opening) + 1)
    assert one.opening[-4] == TOKENS.sot


def test_one_place_is_always_the_targets_own() -> None:
    """With R tokens left at most R - 1 are proposed."""
    one = row([7] * 100, context=64)
    one.budget = 5
    assert one.propose(8, 0).count == 4
    one.take(Proposal(), [7, 7, 7], 0, -1.0)
    assert one.propose(8, 0).count == 1
    one.take(Proposal(), [7], 0, -1.0)
    assert one.propose(8, 3).count == 0


def test_the_drafter_follows_where_the_text_has_run_off() -> None:
    one = row([5, 6])
    assert one.propose(8, 4).text == [5, 6]
    one.take(Proposal([5, 6]), [5, 6, 9], 2, -1.0)
    assert one.propose(8, 4) == Proposal(drafted=4)


def test_a_text_that_fits_nowhere_rests_longer_and_longer() -> None:
    """The rounds it costs grow like the logarithm of the transcript."""
    one = row(list(range(50, 100)), context=448)
    tried = []
    for number in range(60):
        proposal = one.propose(8, 0)
        tried.append(bool(proposal.text))
        one.take(proposal, [number % 40], 0, -1.0)
    assert tried[:8] == [True, True, False, True, False, False, False, True]
    assert sum(tried) <= 7


def test_figures_add_up() -> None:
    """Reused are the accepted tokens of texts, accepted those and the drafter's."""
    one = row([5, 6])
    one.take(Proposal([5, 6]), [5, 9], 1, -1.0)
    one.take(Proposal(drafted=3), [1, 2, TOKENS.eot], 2, -0.5)
    result = one.result(TOKENS)
    assert isinstance(result, Hypothesis)
    assert (result.proposed, result.accepted, result.reused) == (5, 3, 1)
    assert result.mean_logprob == pytest.approx(-0.3)
    assert one.finished(TOKENS.eot)


def test_what_is_not_finite_is_a_failure() -> None:
    one = row()
    one.take(Proposal(), [1], 0, math.nan)
    assert one.finished(TOKENS.eot)
    assert isinstance(one.result(TOKENS), Failure)
