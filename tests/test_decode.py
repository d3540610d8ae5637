import math

import torch

from model.decode import choose, sample, uniform


def column(value: float, rows: int) -> torch.Tensor:
    return torch.full((rows,), value)


def test_draws_are_functions_of_their_counter() -> None:
    """The same (seed, position, purpose) gives the same draw in any company."""
    seeds, positions = torch.arange(50), torch.arange(50) * 7
    together = uniform(seeds, positions, 0)
    alone = torch.cat([uniform(seeds[i : i + 1], positions[i : i + 1], 0) for i in range(50)])
    assert torch.equal(together, alone)
    assert not torch.equal(together, uniform(seeds, positions, 1))


def test_draws_are_uniform_and_independent() -> None:
    """Mean, variance and correlation of neighbours within five standard errors."""
    n = 200_000
    for seed in (0, 1, -1, 2**63 - 1):
        draws = uniform(torch.tensor(seed), torch.arange(n), 0)
        assert draws.min() >= 0
        assert draws.max() < 1
        assert abs(draws.mean() - 0.5) < 5 * math.sqrt(1 / 12 / n)
        assert abs(draws.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / n)
        for other in (
            uniform(torch.tensor(seed), torch.arange(n) + 1, 0),
            uniform(torch.tensor(seed), torch.arange(n), 1),
            uniform(torch.tensor(seed) + 1, torch.arange(n), 0),
        ):
            correlation = torch.corrcoef(torch.stack((draws, other)))[0, 1]
            assert abs(correlation) < 5 / math.sqrt(n)


def test_sampling_follows_the_distribution() -> None:
    """Chi-square of 100,000 draws from eight outcomes stays below its 1 - 1e-6 quantile."""
    probabilities = torch.tensor([0.4, 0.0, 0.2, 0.1, 0.15, 0.05, 0.0, 0.1])
    n = 100_000
    draws = uniform(torch.tensor(3), torch.arange(n), 0)
    counts = torch.bincount(sample(probabilities.expand(n, -1), draws), minlength=8)
    assert counts[1] == 0
    assert counts[6] == 0
    likely = probabilities > 0
    expected = probabilities[likely] * n
    chi2 = float(((counts[likely] - expected) ** 2 / expected).sum())
    assert chi2 < 35.9  # five degrees of freedom


def test_extreme_draws_stay_inside() -> None:
    """0 takes the first possible token, the largest draw the last possible one."""
    probabilities = torch.tensor([[0.0, 0.25, 0.75, 0.0]]).expand(2, -1)
    draws = torch.tensor([0.0, 1.0 - 2.0**-53], dtype=torch.float64)
    assert sample(probabilities, draws).tolist() == [1, 2]


def test_temperature_zero_is_argmax_beside_any_neighbour() -> None:
    """Rows of any temperature share a batch; scores are those at temperature 1."""
    logits = torch.randn(3, 11)
    temperature = torch.tensor([0.0, 1.0, 0.0])
    seeds, positions = torch.arange(3), torch.arange(3)
    tokens, logprobs = choose(logits, temperature, seeds, positions)
    assert tokens[0] == logits[0].argmax()
    assert tokens[2] == logits[2].argmax()
    assert torch.equal(logprobs, logits.log_softmax(-1)[torch.arange(3), tokens])


def test_a_high_temperature_flattens() -> None:
    """At T = 2 the odds of two tokens are the square root of those at T = 1."""
    n = 100_000
    logits = torch.tensor([math.log(9.0), 0.0]).expand(n, -1)
    tokens, _ = choose(logits, column(2.0, n), torch.zeros(n, dtype=torch.int64), torch.arange(n))
    assert abs(float(tokens.float().mean()) - 0.25) < 5 * math.sqrt(0.25 * 0.75 / n)


def test_suppressed_tokens_are_never_drawn() -> None:
    """-inf stays out at every temperature."""
    n = 10_000
    logits = torch.zeros(n, 4)
    logits[:, 2] = -torch.inf
    tokens, logprobs = choose(
        logits, column(1.5, n), torch.zeros(n, dtype=torch.int64), torch.arange(n)
    )
    assert set(tokens.tolist()) == {0, 1, 3}
    assert logprobs.isfinite().all()


def test_a_row_without_finite_logits_says_so() -> None:
    """NaN and infinity show in the log-probability; the neighbour is untouched."""
    logits = torch.randn(3, 5)
    logits[0, 1], logits[1, 3] = torch.nan, torch.inf
    zeros = torch.zeros(3, dtype=torch.int64)
    for temperature in (0.0, 1.0):
        tokens, logprobs = choose(logits, column(temperature, 3), zeros, zeros)
        assert logprobs.isfinite().tolist() == [False, False, True]
        assert (tokens < 5).all()
