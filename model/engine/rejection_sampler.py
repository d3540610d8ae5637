"""From logits to tokens: pure functions of tensors, without data-dependent shapes or host reads.

Glossary. *Candidates* are proposed tokens; *verify*: the target's logits at the anchor and at every
candidate; *accept*: keep the longest prefix of candidates that the target agrees with; *recovered*:
the target's own token at the first disagreement; *bonus*: its own token after a fully accepted
block. A round emits the accepted prefix and one recovered or bonus token.

Random numbers are counter-based: a draw is a function of (seed, position, purpose) alone, so that
a request has the same text alone and in any batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# Purposes of a draw: two draws for the same position must be independent.
OWN = 0  # a token of the target's own: plain sampling, recovered and bonus
ACCEPTANCE = 1  # whether a sampled candidate is kept
DRAFT = 2  # the candidate itself

_MASK = 0x7FFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class RejectionOutput:
    """The tokens that a round emits, by row.

    tokens: [rows, k + 1] int64, of which the first `emitted` count; the rest is meaningless.
    emitted: [rows] int64, 1 … k + 1; accepted: [rows] int64, how many of them were candidates.
    logprobs: [rows, k + 1] float32, natural, at temperature 1; not finite where a logit is not.
    """

    tokens: Tensor
    emitted: Tensor
    accepted: Tensor
    logprobs: Tensor


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
    """Inverse-transform sampling: […, vocabulary] and […] float64 → […] int64.

    The weights need not sum to 1: their sum, in float64, scales the draw. A token of weight 0 is
    never drawn, but for a draw that rounds to 1; weights that are not finite give a token inside the vocabulary.
    """
    cumulated = probabilities.double().cumsum(-1)
    threshold = (draw * cumulated[..., -1]).unsqueeze(-1)
    drawn = torch.searchsorted(cumulated, threshold, right=True).squeeze(-1)
    return drawn.clamp(max=probabilities.shape[-1] - 1)


def warm_softmax(logits: Tensor, temperature: Tensor) -> Tensor:
    """[rows, n, vocabulary] → probabilities, float32; temperature [rows], 0 read as 1."""
    warm = torch.where(temperature > 0, temperature, 1.0)
    # Less the greatest first, or the least temperatures would overflow.
    scores = logits.float()
    return ((scores - scores.amax(-1, keepdim=True)) / warm[:, None, None]).softmax(-1)


def accept(
    logits: Tensor,
    candidates: Tensor,
    counts: Tensor,
    temperature: Tensor,
    seed: Tensor,
    position: Tensor,
    *,
    eot: int,
    sampled: bool,
    draft: Tensor | None = None,
    distributed: Tensor | None = None,
) -> RejectionOutput:
    """Speculative verification (Leviathan et al. 2023; Whisper-Flash 3.1, A.1 and A.4).

    logits: [rows, k + 1, vocabulary], the target's at the anchor and the candidates, with the token
    rules applied. candidates: [rows, k] int64, of which the first counts [rows] are proposed.
    temperature: [rows]; 0 is greedy. position: [rows], of the first token in the transcript.
    sampled: whether any temperature is above 0; the host knows, which spares greedy batches the
    softmax. draft: [rows, k, vocabulary] float32, the distribution that the candidates were drawn
    from, in rows where `distributed` [rows] is true; elsewhere a candidate is a point mass.

    A point mass is accepted with p(x), else p without x is resampled. Both happen at once when the
    target's own token is drawn first and compared: so the text is that of plain sampling for the
    same seed, whatever point masses were proposed.
    """
    scores = logits.float()
    own = scores.argmax(-1)
    offsets = torch.arange(logits.shape[1], device=logits.device)
    proposed = offsets[:-1] < counts[:, None]
    if not sampled:
        return _emit(scores, candidates, own, (own[:, :-1] == candidates) & proposed, eot)
    positions = position[:, None] + offsets
    p = warm_softmax(scores, temperature)
    drawn = sample(p, uniform(seed[:, None], positions, OWN))
    own = torch.where(temperature[:, None] > 0, drawn, own)
    kept = (own[:, :-1] == candidates) & proposed
    if draft is not None and distributed is not None:
        # The candidates of a drafter with non-finite output count as point masses.
        mixed = (distributed & (temperature > 0))[:, None] & draft.isfinite().all(-1)
        p, positions = p[:, :-1], positions[:, :-1]
        at = candidates.unsqueeze(-1)
        coin = uniform(seed[:, None], positions, ACCEPTANCE)
        ratio_kept = coin * draft.gather(-1, at).squeeze(-1) < p.gather(-1, at).squeeze(-1)
        kept = torch.where(mixed, ratio_kept & proposed, kept)
        recovered, left = _recover(p, draft, uniform(seed[:, None], positions, OWN))
        recovered = torch.where(left & mixed & proposed, recovered, own[:, :-1])
        own = torch.cat((recovered, own[:, -1:]), 1)
    return _emit(scores, candidates, own, kept, eot)


def _recover(p: Tensor, draft: Tensor, draw: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens [rows, k] of the distribution max(p - draft, 0), and where it has any weight.

    It has none where the two are equal: only rounding can then have rejected.
    """
    residual = (p - draft).clamp(min=0.0)
    return sample(residual, draw), residual.sum(-1) > 0


def _emit(
    scores: Tensor, candidates: Tensor, own: Tensor, kept: Tensor, eot: int
) -> RejectionOutput:
    """The accepted prefix and the target's own token behind it.

    scores: [rows, k + 1, vocabulary] float32. own: [rows, k + 1], the target's token at each place.
    kept: [rows, k], whether a candidate is accepted if all before it are.
    """
    width = own.shape[1]
    offsets = torch.arange(width, device=own.device)
    accepted = kept.long().cumprod(1).sum(1)
    tokens = torch.where(offsets < accepted[:, None], torch.cat((candidates, own[:, -1:]), 1), own)
    # An accepted end of transcript ends without a bonus.
    ends = ((tokens == eot) & (offsets <= accepted[:, None])).long()
    first_end = torch.where(ends.any(1), ends.argmax(1), width)
    emitted = torch.minimum(accepted + 1, first_end + 1)
    # log_softmax takes half the time of logsumexp for so wide a row.
    logprobs = scores.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return RejectionOutput(tokens, emitted, torch.minimum(accepted, emitted), logprobs)
