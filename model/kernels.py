"""Matrix products for the CPU: oneDNN with weights packed once.

torch's own float32 `linear` takes the vendor's BLAS, which here falls far behind oneDNN when the
weights are packed beforehand. Median ms, two cores of an AVX-512 machine, 512 → 2,048 with bias:

    rows       1      5      9      33     1,500
    linear     0.056  0.242  0.293  0.828  30.0
    packed     0.069  0.075  0.107  0.299  12.5

and 512 → 51,865 (the output head): 7.0, 20.1, 18.8, 35.7 against 2.4, 3.3, 4.2, 9.4 ms. A row's result
depends on the rows beside it by rounding at most, as with `linear`.
"""

import torch
from torch import Tensor, nn


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


def pack(module: nn.Module) -> None:
    """Replace every float32 linear layer below `module` by a packed one, where torch has oneDNN."""
    if not torch.backends.mkldnn.is_available():
        return
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child, gelu=isinstance(child, LinearGelu)))
        else:
            pack(child)
