import pytest
import torch
from torch import nn

from model.kernels import LinearGelu, PackedLinear, pack

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN"
)


@pytest.mark.parametrize("rows", [1, 2, 9, 33, 300])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.Linear, LinearGelu])
@torch.inference_mode()
def test_a_packed_product_is_the_same_product(rows: int, bias: bool, kind: type[nn.Linear]) -> None:
    """Equal within float32's rounding, for any leading dimensions and strides."""
    linear = kind(48, 130, bias=bias)
    packed = PackedLinear(linear, gelu=kind is LinearGelu)
    for x in (torch.randn(rows, 48), torch.randn(2, rows, 48), torch.randn(48, rows).t()):
        assert torch.allclose(packed(x), linear(x), atol=1e-5)


@torch.inference_mode()
def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """Nine rows at once give what each gives alone, up to rounding."""
    packed = PackedLinear(nn.Linear(64, 700), gelu=False)
    rows = torch.randn(9, 64)
    alone = torch.cat([packed(rows[i : i + 1]) for i in range(9)])
    assert torch.allclose(packed(rows), alone, atol=1e-5)


def test_packing_reaches_every_layer_and_knows_gelu() -> None:
    """Nested modules are packed; other layers stay."""
    inner = nn.Sequential(LinearGelu(4, 4))
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), inner)
    x = torch.randn(3, 4)
    with torch.inference_mode():
        before = module(x)
        pack(module)
        assert torch.allclose(module(x), before, atol=1e-5)
    assert isinstance(module[0], PackedLinear)
    assert isinstance(module[1], nn.LayerNorm)
    assert isinstance(inner[0], PackedLinear)
