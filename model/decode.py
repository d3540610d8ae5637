"""From logits to tokens: pure functions of tensors, without data-dependent shapes or host reads.

Random numbers are counter-based: a draw is a function of (seed, position, purpose) alone, so that
a request gives the same text alone and in any batch.
"""

import torch
from torch import Tensor

# Purposes of a draw: two draws for the same position must be independent.
TARGET = 0

_MASK = 0x7FFFFFFFFFFFFFFF


def _signed(constant: int) -> int:
    """A 64-bit pattern as torch's int64 holds it."""
    return constant - (1 << 64) if constant >> 63 else constant


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64, which torch shifts arithmetically."""
    return (x >> bits) & (_MASK >> (bits - 1))


def _mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection of 64-bit integers."""
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def uniform(seed: Tensor, position: Tensor, purpose: int) -> Tensor:
    """Draws in [0, 1), float64, of the broadcast shape of `seed` and `position` (int64)."""
    counter = position * 4 + purpose
    bits = _mix(_mix(seed + _signed(0x9E3779B97F4A7C15)) + counter * _signed(0x9E3779B97F4A7C15))
    return _shift(bits, 11).double() * 2.0**-53


def sample(probabilities: Tensor, draw: Tensor) -> Tensor:
    """Inverse-transform sampling: […, vocabulary] float32 and […] float64 → […] int64.

    The cumulated sum is float64 and its last value scales the draw, so that rounding never selects
    a token behind the last one; a token of probability 0 is never drawn.
    """
    cumulated = probabilities.double().cumsum(-1)
    threshold = (draw * cumulated[..., -1]).unsqueeze(-1)
    return torch.searchsorted(cumulated, threshold, right=True).squeeze(-1)


def choose(
    logits: Tensor, temperature: Tensor, seed: Tensor, position: Tensor
) -> tuple[Tensor, Tensor]:
    """One token a row → tokens [rows] int64 and their natural log-probabilities [rows] float32.

    logits: [rows, vocabulary] with the token rules applied. temperature: [rows]; 0 is argmax.
    Log-probabilities are those at temperature 1, as Whisper scores a transcript; a row with a NaN
    or infinite logit gets one that is not finite.
    """
    scores = logits.float()
    greedy = scores.argmax(-1)
    warm = torch.where(temperature > 0, temperature, 1.0)
    drawn = sample((scores / warm[:, None]).softmax(-1), uniform(seed, position, TARGET)).clamp(
        max=scores.shape[-1] - 1
    )
    tokens = torch.where(temperature > 0, drawn, greedy)
    logprobs = scores.log_softmax(-1).gather(-1, tokens[:, None]).squeeze(-1)
    return tokens, logprobs
