import gc
import weakref
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from model.whisper import kernels
from model.whisper.kernels import FEW_ROWS, MANY_ROWS, LinearGelu, PackedLinear, pack

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
    packed = PackedLinear(nn.Linear(64, 700), gelu=False)
    rows = torch.randn(9, 64)
    alone = torch.cat([packed(rows[i : i + 1]) for i in range(9)])
    assert torch.allclose(packed(rows), alone, atol=1e-5)


def test_packing_reaches_every_layer_and_knows_gelu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested modules are packed; other layers stay."""
    monkeypatch.setattr(kernels, "least_seconds", lambda works: [1.0 for _ in works])
    inner = nn.Sequential(LinearGelu(4, 4))
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), inner)
    x = torch.randn(3, 4)
    with torch.inference_mode():
        before = module(x)
        pack(module, rows=FEW_ROWS)
        assert torch.allclose(module(x), before, atol=1e-5)
    assert isinstance(module[0], PackedLinear)
    assert isinstance(module[1], nn.LayerNorm)
    assert isinstance(inner[0], PackedLinear)


def test_the_faster_kernel_is_taken_by_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shape is measured once, on as many rows as were named; a near tie is packed."""
    asked: list[tuple[type[nn.Module], tuple[int, ...]]] = []
    seconds = {48: 1.2, 64: 1.3}  # of packed products; plain ones take 1.0

    def least(works: list[Callable[[], Tensor]]) -> list[float]:
        times = []
        for work in works:
            assert isinstance(work, partial)
            layer, (x,) = work.func, work.args
            assert isinstance(layer, nn.Module)
            asked.append((type(layer), tuple(x.shape)))
            packed = isinstance(layer, PackedLinear)
            times.append(seconds[layer(x).shape[-1]] if packed else 1.0)
        return times

    monkeypatch.setattr(kernels, "least_seconds", least)
    module = nn.Sequential(nn.Linear(16, 48), nn.Linear(48, 64), nn.Linear(16, 48))
    pack(module, rows=MANY_ROWS)
    assert [type(layer) for layer in module] == [PackedLinear, nn.Linear, PackedLinear]
    assert asked == [
        (kind, (MANY_ROWS, width)) for width in (16, 48) for kind in (nn.Linear, PackedLinear)
    ]


def test_real_measurements_choose_one_of_the_two() -> None:
    module = nn.Sequential(nn.Linear(256, 512))
    x = torch.randn(9, 256)
    with torch.inference_mode():
        before = module(x)
        pack(module, rows=FEW_ROWS)
        assert isinstance(module[0], nn.Linear | PackedLinear)
        assert torch.allclose(module(x), before, atol=1e-5)


def test_packing_frees_the_weights_it_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "least_seconds", lambda works: [1.0 for _ in works])
    module = nn.Sequential(nn.Linear(16, 16))
    original = weakref.ref(module[0].weight)
    pack(module, rows=FEW_ROWS)
    gc.collect()
    assert original() is None
