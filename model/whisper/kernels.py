"""Float32 matrix products for the CPU: plain, or oneDNN with weights packed once, whichever is faster.

torch's `linear` takes the vendor's BLAS, which on most machines is far slower than oneDNN with packed
weights. `pack` measures both at start-up, shape by shape, and decides once: a layer whose kernel changed
with the number of rows would round differently. Median ms, two cores of an AVX-512 machine, 512 → 2,048
with bias:

    rows       1      5      9      33     1,500
    linear     0.056  0.242  0.293  0.828  30.0
    packed     0.069  0.075  0.107  0.299  12.5

and 512 → 51,865 (the output head): 7.0, 20.1, 18.8, 35.7 against 2.4, 3.3, 4.2, 9.4 ms. Other rows
change a row's result by rounding at most, as with `linear`.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from model.whisper.measure import least_seconds

# Typical rows of a pass: of the encoder, whose times grow in proportion to them, and of the decoder.
MANY_ROWS, FEW_ROWS = 256, 9
_TOLERANCE = 1.25  # packed products may seem this much slower: the difference is mostly noise


class PackedLinear(nn.Module):
    """`torch.nn.Linear` in float32 on the CPU, followed by GELU if `gelu`.

    It copies the weights: the original's memory is free once nothing else refers to it.
    """

    packed: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear, *, gelu: bool) -> None:
        super().__init__()
        packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())  # noqa: SLF001
        self.register_buffer("packed", packed, persistent=False)
        bias = dict(linear.named_parameters()).get("bias")
        self.register_buffer("bias", None if bias is None else bias.detach(), persistent=False)
        self._activation = "gelu" if gelu else "none"

    def forward(self, x: Tensor) -> Tensor:
        """[…, in] → […, out]."""
        # The operators that torch's own compiler emits; public names for them do not exist.
        out: Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001
            x, self.packed, self.bias, self._activation, [], "none"
        )
        return out


class LinearGelu(nn.Linear):
    """A linear layer followed by the exact (erf) GELU."""

    def forward(self, x: Tensor) -> Tensor:
        """[…, in] → […, out]."""
        return nn.functional.gelu(super().forward(x))


def pack(module: nn.Module, *, rows: int) -> None:
    """Choose the faster kernel, packed or plain, for each float32 linear layer below `module`.

    rows: typical rows of a pass, MANY_ROWS or FEW_ROWS. Each shape is measured once.
    """
    if not torch.backends.mkldnn.is_available():
        return
    chosen: dict[tuple[int, ...], bool] = {}

    def faster(linear: nn.Linear, _before: nn.Module | None) -> nn.Module:
        packed = PackedLinear(linear, gelu=isinstance(linear, LinearGelu))
        shape = (*linear.weight.shape, isinstance(linear, LinearGelu))
        if shape not in chosen:
            chosen[shape] = _packed_is_faster(linear, packed, rows)
        return packed if chosen[shape] else linear

    replace_linears(module, faster)


def replace_linears(
    module: nn.Module, make: Callable[[nn.Linear, nn.Module | None], nn.Module]
) -> None:
    """Replace each linear layer below `module` by `make(linear, the layer before it)`."""
    before: nn.Module | None = None
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, make(child, before))
        else:
            replace_linears(child, make)
        before = child


@torch.inference_mode()
def _packed_is_faster(linear: nn.Linear, packed: PackedLinear, rows: int) -> bool:
    """Packed wins near-ties, so that one machine always chooses alike."""
    x = torch.zeros(rows, linear.in_features)
    plain_s, packed_s = least_seconds([partial(layer, x) for layer in (linear, packed)])
    return packed_s <= plain_s * _TOLERANCE
