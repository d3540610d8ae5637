"""The int8 target's computations on the CPU: row-scaled products, attention in bfloat16.

A row's result is the same, to the last bit, whatever other rows are in the batch: each input row has its
own scale, products sum integers, and attention runs in shapes that sum in one order. Closeness would not
do: rounding to steps of a scale can turn the least difference into a whole step, and then verifying many
tokens in one pass would not equal decoding them one by one.

Weights are int8 with a scale for each output channel, inputs uint8 (signed ones have no fast kernel).
Median ms of base's encoder, 1,500 rows, one thread of an AVX-512 machine with VNNI and BF16:

                  512 → 1,536   512 → 512   512 → 2,048, GELU   2,048 → 512   attention
    float32           9.1          3.0            13.3              12.8         48.8
    bfloat16          4.6          1.5             6.7               6.3         19.7
    int8              2.4          0.8             3.7               3.2

Rounding the inputs adds 0.3 ms for 512 columns, 1.3 ms for 2,048. Float32 attention is torch's own;
bfloat16 attention goes head by head, where torch's own takes 51 ms.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from model.whisper.kernels import LinearGelu, replace_linears

Precision = Literal["float32", "int8"]

MIXED_IN = torch.bfloat16
"""The dtype of queries, keys and values."""

_CHUNK = 256  # rows of a product that stay in the core's cache
_TILE = 16  # up to so many queries sum in one order; more are split into tiles
_LEAST_WEIGHT = 1e-12  # so that a channel of zeros has a scale
# Signed inputs have as many steps on either side of zero. A GELU's outputs lie above -_GELU_FLOOR and have
# most of the 255 steps above zero; the least maximum of a row is that whose steps below zero reach the floor.
_SIGNED, _MIDDLE, _LEAST_SIGNED = 127, 128, 1e-12
_GELU_FLOOR, _GELU_ZERO, _GELU_SPAN = 0.17, 32, 223
_LEAST_GELU = _GELU_FLOOR * _GELU_SPAN / _GELU_ZERO


def missing_instructions() -> list[str]:
    """Instruction sets that the int8 target needs and this CPU lacks."""
    # torch has no public names for these.
    known = {
        "AVX-512 VNNI": torch.cpu._is_vnni_supported,  # noqa: SLF001
        "AVX-512 BF16": torch.cpu._is_avx512_bf16_supported,  # noqa: SLF001
    }
    return [name for name, supported in known.items() if not supported()]


class QuantisedLinear(nn.Module):
    """A `torch.nn.Linear`, or a `LinearGelu`, with int8 weights; float32 in and out.

    behind_gelu: the input is a GELU's output. Values that are not finite stay so.
    """

    packed: Tensor
    scales: Tensor
    zeros: Tensor
    bias: Tensor
    shift: Tensor

    def __init__(self, linear: nn.Linear, *, behind_gelu: bool) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scales = (weight.abs().amax(1) / 127).clamp_min(_LEAST_WEIGHT)
        steps = (weight / scales[:, None]).round().to(torch.int8)
        self.signed = not behind_gelu
        self._span, self._zero, self._least = (
            (_SIGNED, _MIDDLE, _LEAST_SIGNED)
            if self.signed
            else (_GELU_SPAN, _GELU_ZERO, _LEAST_GELU)
        )
        self.gelu = isinstance(linear, LinearGelu)
        out, width = weight.shape
        bias = dict(linear.named_parameters()).get("bias")
        buffers = {
            # Packed for few rows; many rows cost the same with this packing.
            "packed": torch.ops.onednn.qlinear_prepack(steps, [1, width]),
            "scales": scales / self._span,
            "zeros": torch.zeros(out, dtype=torch.int64),
            "bias": torch.zeros(out) if bias is None else bias.detach().float(),
            # Conversion to integers truncates; half a step more makes it round.
            "shift": torch.full((width,), self._zero + 0.5),
        }
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[…, in] → […, out]."""
        rows = x.reshape(-1, x.shape[-1])
        if len(rows) <= _CHUNK:
            out = self._few(rows)
        else:
            out = torch.empty(len(rows), len(self.bias))
            for first in range(0, len(rows), _CHUNK):
                out[first : first + _CHUNK] = self._few(rows[first : first + _CHUNK])
        return out.view(*x.shape[:-1], -1)

    def _few(self, rows: Tensor) -> Tensor:
        most = (rows.abs() if self.signed else rows).amax(-1, keepdim=True)
        most = most.clamp_min_(self._least)
        steps = torch.addcmul(self.shift, rows, self._span / most).to(torch.uint8)
        # The operator that torch's compiler emits; it has no public name.
        sums = torch.ops.onednn.qlinear_pointwise(
            steps,
            1.0,
            self._zero,
            self.packed,
            self.scales,
            self.zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        out = torch.addcmul(self.bias, sums, most)
        return torch.ops.aten.gelu_(out) if self.gelu else out


def quantise(module: nn.Module) -> None:
    """Replace every linear layer below `module` by an int8 one, the output head included."""
    replace_linears(
        module,
        lambda linear, before: QuantisedLinear(linear, behind_gelu=isinstance(before, LinearGelu)),
    )


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention in bfloat16: q [rows, heads, n, width], k, v [rows, heads, m, width] → as q.

    mask: added to the scores, as `additive_mask` makes it. For speed, keys lie in memory position by
    position (see `write_keys`). A query's result depends on m, but neither on n nor on other rows.
    """
    q = q * q.shape[-1] ** -0.5
    if q.shape[2] <= _TILE:
        return _attend_few(q, k, v, mask)
    masks = mask.expand(-1, -1, q.shape[2], -1)
    parts = zip(torch.split(q, _TILE, 2), torch.split(masks, _TILE, 2), strict=True)
    return torch.cat([_attend_few(part, k, v, part_mask) for part, part_mask in parts], 2)


def attend_all(q: Tensor, k: Tensor, v: Tensor, weights: Tensor | None) -> Tensor:
    """Attention in bfloat16 of many positions to all; weights: [m], added to the scores of each.

    It goes head by head, so that scores of 1,500 by 1,500 stay in the core's cache.
    """
    q = q * q.shape[-1] ** -0.5
    mixed = torch.empty_like(q)
    for row in range(q.shape[0]):
        for head in range(q.shape[1]):
            keys = k[row, head].t()
            if weights is None:
                scores = torch.mm(q[row, head], keys)
            else:
                scores = torch.addmm(weights, q[row, head], keys)
            mixed[row, head] = torch.mm(scores.softmax(-1), v[row, head])
    return mixed


def additive_mask(mask: Tensor) -> Tensor:
    """A boolean mask (True: attend) as `attend` takes it: 0 and minus infinity."""
    return torch.zeros(mask.shape, dtype=MIXED_IN).masked_fill_(~mask, -torch.inf)


def write_keys(target: Tensor, keys: Tensor) -> None:
    """Copy keys [rows, heads, m, width] into a cache whose memory layout is [rows, heads, width, m]."""
    for row in range(keys.shape[0]):
        for head in range(keys.shape[1]):
            # torch transposes whole matrices in blocks, eight times as fast as it copies otherwise.
            target[row, head].t().copy_(keys[row, head].to(MIXED_IN).contiguous().t())


def _attend_few(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    alone = q.shape[2] == 1
    if alone:  # one row would take another kernel, which sums in another order
        q = q.expand(-1, -1, 2, -1)
    scores = torch.matmul(q, k.transpose(-1, -2)).add_(mask)
    mixed = torch.matmul(scores.softmax(-1), v)
    return mixed[:, :, :1] if alone else mixed
