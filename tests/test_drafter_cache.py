import pytest
import torch
from torch import Tensor, nn

from model.drafting.drafter_cache import DrafterCache, frozen_copy
from model.drafting.parallel import Architecture
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import whisper_of

WHISPER = whisper_of(CHECKPOINT)
WIDTH = CHECKPOINT.config.d_model
CUT = (1, 5, 9, 100, 256)


def cache(vocabulary: tuple[int, ...] | None = None, *, packed: bool = False) -> DrafterCache:
    shape = Architecture(1, 4, (0, 1), vocabulary)
    bias = CHECKPOINT.tokens.bias(first=False)
    return DrafterCache(shape, WHISPER, bias, 3, layers=2, packed=packed)


def logits_of(one: DrafterCache, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """The logits and ids that `choose` gets."""
    shown: list[tuple[Tensor, Tensor | None]] = []

    def choose(logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        assert at == 2
        shown.append((logits, ids))
        return logits.argmax(-1)

    named = one.propose(hidden, choose, 2)
    assert torch.equal(named, shown[0][0].argmax(-1))
    return shown[0]


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_head_says_of_its_tokens_what_the_whole_one_says(packed: bool) -> None:
    """With the token rules: what the checkpoint suppresses stays out. Packed, it may be in int8."""
    hidden = torch.randn(2, 3, WIDTH, generator=torch.Generator().manual_seed(1))
    whole, _ = logits_of(cache(), hidden)
    cut, ids = logits_of(cache(CUT, packed=packed), hidden)
    assert ids is not None
    assert ids.tolist() == list(CUT)
    assert torch.allclose(cut, whole[..., list(CUT)], atol=0.02 * float(whole.abs().max()))
    assert (cut[..., 0] == -torch.inf).all()  # token 1 is suppressed


def test_slots_keep_apart_move_and_are_cleared() -> None:
    """Text and audio of one slot are its own, of every layer; nothing is left where it was zeroed."""
    one = cache()
    generator = torch.Generator().manual_seed(2)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    positions = torch.tensor([[0, 1, 2], [4, 5, 6]])
    k, v = noise(2, 3, 2, 16), noise(2, 3, 2, 16)
    audio = [(noise(2, 2, 7, 16), noise(2, 2, 7, 16)) for _ in range(2)]
    one.write_text(1, k, v, positions, 1)
    one.write_audio(audio, 1)

    def kept(slot: int) -> list[Tensor]:
        """Keys and values of layer 1's text, then of each layer's audio."""
        pairs = [*one.text_kv(1, 3, 8), *one.audio_kv(0, 3, 7), *one.audio_kv(1, 3, 7)]
        return [tensor[slot].clone() for tensor in pairs]

    assert not any(tensor.any() for tensor in [*kept(0), *one.text_kv(0, 3, 8)])
    assert torch.equal(kept(2)[0][:, 4:7], k[1].transpose(0, 1))
    assert torch.equal(kept(2)[3], audio[0][1][1])
    before = kept(2)
    one.move(2, 0, 8, 7)
    one.clear(1, 3)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(kept(0), before, strict=True))
    assert not any(tensor.any() for tensor in [*kept(1), *kept(2)])


def test_the_network_of_the_caller_keeps_its_weights() -> None:
    network = nn.Sequential(nn.Linear(WIDTH, WIDTH))
    x = torch.randn(2, WIDTH)
    own = frozen_copy(network, WHISPER, packed=True)
    assert torch.allclose(own(x), network(x), atol=0.05)  # in int8, where the CPU can
    assert not any(parameter.requires_grad for parameter in own.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())
