"""Attention of the target and its drafters: among text or states, and from text to states."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.whisper.quantised import attend, attend_all

Parts = Sequence[tuple[slice, int]]  # neighbouring rows, and how many keys they attend to


class Mixing(nn.Module):
    """What self-attention and cross-attention have in common."""

    mixed_in: torch.dtype | None = None
    """The dtype that q, k and v are rounded to (quantised.py); None: their own."""

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attention [rows, heads, n, head width] → [rows, n, width]."""
        if self.mixed_in is None:
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            assert mask is not None
            mixed = attend(q.to(self.mixed_in), k, v, mask).float()
        return mixed.transpose(1, 2).flatten(2)


class Attention(Mixing):
    """Self-attention; q, k and v are one product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[rows, n, width] → q, k, v: [rows, n, heads, head width]."""
        rows, n, _ = x.shape
        q, k, v = self.qkv(x).to(self.mixed_in).view(rows, n, 3, self.heads, -1).unbind(2)
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """q: [rows, heads, n, head width]; k, v: [rows, heads, m, head width]; mask True = seen."""
        out: Tensor = self.out(self.mix(q, k, v, mask))
        return out

    def attend_all(self, q: Tensor, k: Tensor, v: Tensor, weights: Tensor | None) -> Tensor:
        """As `attend`, of all positions to all; weights: [m], added to the scores of each."""
        if self.mixed_in is None:
            return self.attend(q, k, v, None if weights is None else weights[None, None, None])
        mixed = attend_all(q, k, v, weights).float()
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class CrossAttention(Mixing):
    """Attention from text to the encoder's states; k and v are one product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def project(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, m, width] → k, v: [rows, heads, m, head width]."""
        rows, m, _ = states.shape
        k, v = self.kv(states).view(rows, m, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        return k, v

    def forward(
        self, x: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, parts: Parts = ()
    ) -> Tensor:
        """x: [rows, n, width]; k, v as `project` gives them; parts: rows that are mixed apart."""
        rows, n, _ = x.shape
        q = self.q(x).view(rows, n, self.heads, -1).transpose(1, 2)
        if parts:
            assert mask is not None
            mixed = torch.cat(
                [
                    self.mix(q[part], k[part, :, :m], v[part, :, :m], mask[part, ..., :m])
                    for part, m in parts
                ]
            )
        else:
            mixed = self.mix(q, k, v, mask)
        out: Tensor = self.out(mixed)
        return out


def neighbours(encoder_lens: Sequence[int]) -> list[tuple[slice, int]]:
    """Runs of rows with the same number of encoder states, and that number."""
    runs = groupby(range(len(encoder_lens)), key=lambda row: encoder_lens[row])
    together = [(list(rows), states) for states, rows in runs]
    return [(slice(rows[0], rows[-1] + 1), states) for rows, states in together]
