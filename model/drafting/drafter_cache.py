"""What drafters over slots share: memories of every slot, and the head through which they name tokens.

Allocated once and static, as phases that are captured need them. What a network makes of its
memories is its own file's affair.
"""

import copy
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from model.drafting.interface import Choose
from model.whisper.kernels import FEW_ROWS, pack
from model.whisper.network import Cache, Whisper
from model.whisper.quantised import missing_instructions, quantise

N = TypeVar("N", bound=nn.Module)


class Plan(Protocol):
    """What slots must know of a network's architecture; `Architecture` says what it means."""

    @property
    def block(self) -> int:
        """Most candidates of a round."""
        ...

    @property
    def aux_layers(self) -> tuple[int, ...]:
        """The target's blocks that it is told of."""
        ...

    @property
    def vocabulary(self) -> tuple[int, ...] | None:
        """Ids that can be proposed; None for all."""
        ...


class DrafterCache:
    """What drafters over slots share: aux layers, block, the head, keys and values for every slot.

    With the rest of `model.drafting.interface.Drafter` it is one. bias: the token rules, [vocabulary]. cache:
    what `hear` and `remember` made, [layers, slots, …].
    """

    def __init__(
        self, plan: Plan, whisper: Whisper, bias: Tensor, slots: int, *, layers: int, packed: bool
    ) -> None:
        config, decoder = whisper.config, whisper.decoder
        self.aux_layers, self.block = plan.aux_layers, plan.block
        self._embedding = decoder.embedding
        heads = config.decoder_attention_heads

        def zeros(length: int) -> Tensor:
            shape = (layers, slots, heads, length, config.d_model // heads)
            return decoder.positions.new_zeros(shape)

        text, audio = config.max_target_positions + plan.block + 1, config.max_source_positions
        self.cache = Cache(zeros(text), zeros(text), zeros(audio), zeros(audio))
        self._ids: Tensor | None = None
        self._bias = bias
        self._head: nn.Module = decoder.head
        if plan.vocabulary is not None:
            self._ids = torch.tensor(plan.vocabulary, device=decoder.positions.device)
            self._head = cut_head(whisper, self._ids)
            self._bias = bias[self._ids]
            if packed:
                use_packed_linears(self._head)

    def move(self, source: int, target: int, positions: int, states: int) -> None:
        """Copy the first `positions` and `states` of slot `source` over slot `target`."""
        self.cache.move(source, target, positions, states)

    def clear(self, first: int, last: int) -> None:
        """Zero slots first … last - 1."""
        self.cache.rows(first, last).clear()

    def _keep_encoder(self, pairs: list[tuple[Tensor, Tensor]], first: int) -> None:
        """Acoustic keys and values of each layer, for the slots from `first` on."""
        for index, (k, v) in enumerate(pairs):
            last, m = first + len(k), k.shape[2]
            self.cache.cross_keys[index, first:last, :, :m].copy_(k)
            self.cache.cross_values[index, first:last, :, :m].copy_(v)

    def _keep_text(self, index: int, k: Tensor, v: Tensor, positions: Tensor, first: int) -> None:
        """Keys and values [rows, n, heads, head width] of layer `index` at positions [rows, n]."""
        rows = torch.arange(first, first + len(k), device=k.device)[:, None]
        self.cache.self_keys[index][rows, :, positions] = k
        self.cache.self_values[index][rows, :, positions] = v

    def _text(self, index: int, rows: int, kv_len: int) -> tuple[Tensor, Tensor]:
        """The first `reach` positions of layer `index` in slots 0 … rows - 1."""
        cache = self.cache
        return cache.self_keys[index, :rows, :, :kv_len], cache.self_values[
            index, :rows, :, :kv_len
        ]

    def _encoder_len(self, index: int, rows: int, encoder_len: int) -> tuple[Tensor, Tensor]:
        """What layer `index` hears in slots 0 … rows - 1."""
        cache = self.cache
        return cache.cross_keys[index, :rows, :, :encoder_len], cache.cross_values[
            index, :rows, :, :encoder_len
        ]

    def _name(self, hidden: Tensor, choose: Choose, at: int) -> Tensor:
        """Have `choose` name the candidates from `at` on, of hidden states [rows, n, width]."""
        return choose(self._head(hidden) + self._bias, self._ids, at)


def use_packed_linears(module: nn.Module) -> None:
    """Take the CPU's fastest products: what a draft says need not be exact."""
    if missing_instructions():
        pack(module, rows=FEW_ROWS)
    else:
        quantise(module)


def cut_head(whisper: Whisper, ids: Tensor) -> nn.Sequential:
    """The target's output head over the tokens `ids` alone; in a container, so that it can be packed."""
    weight = whisper.decoder.embedding.weight
    cut = nn.Linear(weight.shape[1], len(ids), bias=False, device="meta")
    cut.weight = nn.Parameter(weight[ids].clone(), requires_grad=False)
    return nn.Sequential(cut)


def frozen_copy(network: N, whisper: Whisper, *, packed: bool) -> N:
    """A frozen copy where the target is. Packing would leave the original without weights to save.

    packed: whether to `hasten` it.
    """
    positions = whisper.decoder.positions
    own = copy.deepcopy(network).to(positions.device, positions.dtype)
    if packed:
        use_packed_linears(own)
    return own.eval().requires_grad_(requires_grad=False)
