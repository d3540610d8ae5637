import math

import pytest
import torch
from torch import Tensor

from model.engine.rejection_sampler import (
    ACCEPTANCE,
    DRAFT,
    OWN,
    RejectionOutput,
    accept,
    sample,
    uniform,
    warm_softmax,
)


def judge(
    logits: Tensor, candidates: Tensor, counts: list[int] | None = None, *, eot: int = -1
) -> RejectionOutput:
    """Greedy verification of [rows, k + 1, vocabulary] logits."""
    rows, k = candidates.shape
    zeros = torch.zeros(rows, dtype=torch.int64)
    return accept(
        logits,
        candidates,
        torch.full((rows,), k) if counts is None else torch.tensor(counts),
        torch.zeros(rows),
        zeros,
        zeros,
        eot=eot,
        sampled=False,
    )


def saying(*rows: list[int], vocabulary: int = 9) -> Tensor:
    """Logits whose argmax spells each row."""
    return torch.nn.functional.one_hot(torch.tensor(rows), vocabulary).float()


def said(rejection: RejectionOutput) -> list[list[int]]:
    pairs = zip(rejection.tokens.tolist(), rejection.emitted.tolist(), strict=True)
    return [tokens[:count] for tokens, count in pairs]


@pytest.mark.parametrize(
    ("target", "candidates", "emitted", "accepted"),
    [
        ([1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4], 3),  # all agree: a bonus
        ([1, 2, 3, 4], [1, 7, 3], [1, 2], 1),  # recovered; a later agreement counts no more
        ([1, 2, 3, 4], [7, 2, 3], [1], 0),  # nothing accepted is plain decoding
        ([1, 8, 3, 4], [1, 8, 3], [1, 8], 2),  # an accepted end (8) ends without a bonus
        ([8, 2, 3, 4], [1, 2, 3], [8], 0),  # the target's own end
        ([1, 2, 3, 8], [1, 2, 3], [1, 2, 3, 8], 3),  # the end as a bonus
        ([1, 2, 3, 4], [1, 8, 3], [1, 2], 1),  # a proposed end that the target does not want
    ],
)
def test_greedy_verification(
    target: list[int], candidates: list[int], emitted: list[int], accepted: int
) -> None:
    rejection = judge(saying(target), torch.tensor([candidates]), eot=8)
    assert said(rejection) == [emitted]
    assert rejection.accepted.tolist() == [accepted]


def test_only_what_was_proposed_is_accepted() -> None:
    logits = saying([1, 2, 3], [1, 2, 3], [1, 2, 3])
    rejection = judge(logits, torch.tensor([[1, 2]] * 3), counts=[0, 1, 2])
    assert said(rejection) == [[1], [1, 2], [1, 2, 3]]


def test_without_candidates_it_is_plain_decoding() -> None:
    rejection = judge(saying([5], [2]), torch.zeros(2, 0, dtype=torch.int64))
    assert said(rejection) == [[5], [2]]


def test_scores_are_those_at_temperature_one() -> None:
    """Log-probabilities belong to the emitted tokens, whatever the temperature."""
    logits = torch.randn(2, 4, 9)
    candidates = logits.argmax(-1)[:, :3]
    rejection = judge(logits, candidates)
    wanted = logits.log_softmax(-1).gather(-1, rejection.tokens[..., None])[..., 0]
    assert torch.allclose(rejection.logprobs, wanted, atol=1e-6)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("evil", [math.nan, math.inf])
def test_a_row_without_finite_logits_says_so(sampled: bool, evil: float) -> None:
    """Its log-probability is not finite; the neighbour's tokens are untouched."""
    logits = torch.randn(3, 2, 9)
    clean = logits.clone()
    logits[0, 0, 4] = evil
    arguments = (
        torch.zeros(3, 1, dtype=torch.int64),
        torch.tensor([0, 1, 1]),
        torch.tensor([0.5, 0.5, 0.0]) * sampled,
        torch.arange(3),
        torch.arange(3),
    )
    rejection = accept(logits, *arguments, eot=-1, sampled=sampled)
    wanted = accept(clean, *arguments, eot=-1, sampled=sampled)
    assert not rejection.logprobs[0, 0].isfinite()
    assert rejection.logprobs[1:].isfinite().all()
    assert said(rejection)[1:] == said(wanted)[1:]
    assert all(0 <= token < 9 for row in said(rejection) for token in row)


def test_draws_are_functions_of_their_counter() -> None:
    seeds, positions = torch.arange(50), torch.arange(50) * 7
    together = uniform(seeds, positions, OWN)
    alone = torch.cat([uniform(seeds[i : i + 1], positions[i : i + 1], OWN) for i in range(50)])
    assert torch.equal(together, alone)


def test_draws_are_uniform_and_independent() -> None:
    """Mean, variance and correlation of neighbours within five standard errors."""
    n = 200_000
    for seed in (0, 1, -1, 2**63 - 1):
        draws = uniform(torch.tensor(seed), torch.arange(n), OWN)
        assert draws.min() >= 0
        assert draws.max() < 1
        assert abs(draws.mean() - 0.5) < 5 * math.sqrt(1 / 12 / n)
        assert abs(draws.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / n)
        for other in (
            uniform(torch.tensor(seed), torch.arange(n) + 1, OWN),
            uniform(torch.tensor(seed), torch.arange(n), ACCEPTANCE),
            uniform(torch.tensor(seed), torch.arange(n), DRAFT),
            uniform(torch.tensor(seed) + 1, torch.arange(n), OWN),
        ):
            correlation = torch.corrcoef(torch.stack((draws, other)))[0, 1]
            assert abs(correlation) < 5 / math.sqrt(n)


def test_extreme_draws_stay_inside() -> None:
    """0 takes the first possible token, the largest draw the last possible one."""
    probabilities = torch.tensor([[0.0, 0.25, 0.75, 0.0]]).expand(2, -1)
    draws = torch.tensor([0.0, 1.0 - 2.0**-53], dtype=torch.float64)
    assert sample(probabilities, draws).tolist() == [1, 2]


N = 200_000  # sequences
LENGTH = 3  # tokens of each
WORDS = 5
GENERATOR = torch.Generator().manual_seed(7)
# Next-token logits by the token before: a target with memory, and drafters that know it badly.
TARGET = torch.randn(WORDS, WORDS, generator=GENERATOR) * 1.5
DRAFTER = TARGET + torch.randn(WORDS, WORDS, generator=GENERATOR)
NARROW = DRAFTER.clone()
NARROW[:, 3:] = -torch.inf  # a cut vocabulary: two tokens are never proposed
OPPOSED = -3 * TARGET


def speculate(drafter: Tensor | None, temperature: float, k: int) -> Tensor:
    """N sequences of LENGTH tokens [N, LENGTH], decoded in rounds of k candidates.

    drafter: its distribution by the token before; None proposes point masses, now right now wrong.
    """
    rows = torch.arange(N)
    heat = torch.full((N,), temperature)
    anchors = torch.zeros(N, dtype=torch.int64)
    done = torch.zeros(N, dtype=torch.int64)
    text = torch.zeros(N, LENGTH + k + 1, dtype=torch.int64)
    while (done < LENGTH).any():
        before, block, laws = anchors, [], []
        for slot in range(k):
            if drafter is None:
                law = None
                token = (before + rows + slot) % WORDS
            else:
                law = warm_softmax(drafter[before][:, None], heat)[:, 0]
                token = sample(law, uniform(rows, done + slot, DRAFT))
                laws.append(law)
            block.append(token)
            before = token
        candidates = torch.stack(block, 1)
        context = torch.cat((anchors[:, None], candidates), 1)
        rejection = accept(
            TARGET[context],
            candidates,
            torch.full((N,), k),
            heat,
            rows,
            done,
            eot=-1,
            sampled=True,
            draft=torch.stack(laws, 1) if laws else None,
            distributed=torch.full((N,), drafter is not None),
        )
        live = done < LENGTH
        for slot in range(k + 1):
            write = live & (slot < rejection.emitted)
            text[rows[write], done[write] + slot] = rejection.tokens[write, slot]
        last = rejection.tokens.gather(1, rejection.emitted[:, None] - 1)[:, 0]
        anchors = torch.where(live, last, anchors)
        done = torch.where(live, done + rejection.emitted, done).clamp(max=LENGTH + k)
    return text[:, :LENGTH]


def closed_form(temperature: float) -> Tensor:
    """Probability of each of the WORDS ** LENGTH sequences under the target."""
    chain = (TARGET / temperature).softmax(-1)
    law = chain[0]
    for _ in range(LENGTH - 1):
        law = (law[..., None] * chain.expand(*law.shape, -1)).flatten(-2).view(*law.shape, WORDS)
    return law.flatten()


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.0])
@pytest.mark.parametrize(
    "drafter", [DRAFTER, NARROW, OPPOSED, None], ids=["near", "narrow", "opposed", "points"]
)
@pytest.mark.parametrize("k", [1, 2])
def test_speculative_sampling_has_the_targets_distribution(
    drafter: Tensor | None, temperature: float, k: int
) -> None:
    """Total variation to the closed form stays within what N samples allow.

    For an empirical law over m outcomes E[TV] <= sqrt(m / N) / 2, and TV exceeds its mean by
    sqrt(ln(1 / d) / 2N) with probability d at most (McDiarmid); here d = 1e-9.
    """
    text = speculate(drafter, temperature, k)
    codes = (text * torch.tensor([WORDS ** (LENGTH - 1 - i) for i in range(LENGTH)])).sum(1)
    empirical = torch.bincount(codes, minlength=WORDS**LENGTH) / N
    total_variation = float((empirical - closed_form(temperature)).abs().sum() / 2)
    bound = math.sqrt(WORDS**LENGTH / N) / 2 + math.sqrt(math.log(1e9) / (2 * N))
    assert total_variation < bound


def test_the_bound_would_notice_a_wrong_rule() -> None:
    """Accepting every candidate is far outside it: the test above can fail."""
    law = (DRAFTER[0]).softmax(-1)
    truth = TARGET[0].softmax(-1)
    assert float((law - truth).abs().sum() / 2) > 0.1


def test_point_masses_change_no_word() -> None:
    assert torch.equal(speculate(None, 1.0, 2), speculate_plainly(1.0))


def speculate_plainly(temperature: float) -> Tensor:
    """The same sequences, one token a pass."""
    rows, anchors, text = torch.arange(N), torch.zeros(N, dtype=torch.int64), []
    for position in range(LENGTH):
        law = warm_softmax(TARGET[anchors][:, None], torch.full((N,), temperature))[:, 0]
        anchors = sample(law, uniform(rows, torch.full((N,), position), OWN))
        text.append(anchors)
    return torch.stack(text, 1)
