"""Float32 matrix products for the CPU: plain, or oneDNN with weights packed once, whichever is faster.

torch's own `linear` takes the vendor's BLAS, which on most machines falls far behind oneDNN when the
weights are packed beforehand. Which one does is measured at start, shape by shape, and then settled:
a layer never changes its kernel with the number of rows, whose results would round otherwise. Median ms, two cores of an AVX-512 machine, 512 → 2,048 with bias:

    rows       1      5      9      33     1,500
    linear     0.056  0.242  0.293  0.828  30.0
    packed     0.069  0.075  0.107  0.299  12.5

and 512 → 51,865 (the output head): 7.0, 20.1, 18.8, 35.7 against 2.4, 3.3, 4.2, 9.4 ms. A row's result
depends on the rows beside it by rounding at most, as with `linear`.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from model.whisper.measure import least_seconds

# What layers mostly see at once: the encoder, whose times grow in proportion, and the decoder.
MANY_ROWS, FEW_ROWS = 256, 9
_NEAR = 1.25  # times as slow as plain ones, packed products are taken still: most often it is noise


class PackedLinear(nn.Module):
    """What a `torch.nn.Linear` computes, float32 on the CPU, with GELU behind it if so asked.

    Takes the weights over: the original's memory is free once nobody else holds it.
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
    """A linear layer and the exact (erf) GELU behind it."""

    def forward(self, x: Tensor) -> Tensor:
        """[…, in] → […, out]."""
        return nn.functional.gelu(super().forward(x))


def pack(module: nn.Module, *, rows: int) -> None:
    """Take the faster of two kernels for each float32 linear layer below `module`: packed or plain.

    rows: what the layers mostly see at once, MANY_ROWS or FEW_ROWS. Shapes are measured once each.
    """
    if not torch.backends.mkldnn.is_available():
        return
    chosen: dict[tuple[int, ...], bool] = {}

    def faster(linear: nn.Linear, _before: nn.Module | None) -> nn.Module:
        packed = PackedLinear(linear, gelu=isinstance(linear, LinearGelu))
        shape = (*linear.weight.shape, isinstance(linear, LinearGelu))
        if shape not in chosen:
            chosen[shape] = _packed_wins(linear, packed, rows)
        return packed if chosen[shape] else linear

    replace_linears(module, faster)


def replace_linears(
    module: nn.Module, make: Callable[[nn.Linear, nn.Module | None], nn.Module]
) -> None:
    """Put `make(linear, the layer before it)` in the place of each linear layer below `module`."""
    before: nn.Module | None = None
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, make(child, before))
        else:
            replace_linears(child, make)
        before = child


@torch.inference_mode()
def _packed_wins(linear: nn.Linear, packed: PackedLinear, rows: int) -> bool:
    """Whether packing is worth while; near a tie it is, so that one machine always chooses alike."""
    x = torch.zeros(rows, linear.in_features)
    plain, ours = least_seconds([partial(layer, x) for layer in (linear, packed)])
    return ours <= plain * _NEAR
