import torch

from model.whisper.attention import CrossAttention, neighbours
from model.whisper.window import Window


@torch.inference_mode()
def test_a_weight_counts_as_so_many_states() -> None:
    """A state of weight log 5 is five equal states."""
    torch.manual_seed(3)
    cross, window = CrossAttention(32, 2), Window.over(4, 25, (5, 5))
    x, states = torch.randn(2, 4, 32), torch.randn(2, window.states, 32)
    repeated = torch.arange(window.states).repeat_interleave(window.weights.exp().round().long())
    k, v = cross.project(states)
    got = cross(x, k, v, window.weights[None, None, None])
    assert torch.allclose(got, cross(x, k[:, :, repeated], v[:, :, repeated], None), atol=1e-5)


@torch.inference_mode()
def test_parts_are_what_their_rows_are_alone() -> None:
    torch.manual_seed(4)
    cross, x = CrossAttention(32, 2), torch.randn(3, 4, 32)
    k, v = cross.project(torch.randn(3, 9, 32))
    mask = torch.randn(3, 1, 1, 9)
    parts = neighbours((9, 9, 5))
    assert parts == [(slice(0, 2), 9), (slice(2, 3), 5)]
    got = cross(x, k, v, mask, parts)
    assert torch.allclose(got[:2], cross(x[:2], k[:2], v[:2], mask[:2]), atol=1e-6)
    alone = cross(x[2:], k[2:, :, :5], v[2:, :, :5], mask[2:, ..., :5])
    assert torch.allclose(got[2:], alone, atol=1e-6)
