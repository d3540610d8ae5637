"""Drafter caches: static keys and values of every slot, and the output head of a drafter."""

import copy
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from model.drafting.interface import Choose
from model.whisper.kernels import FEW_ROWS, pack
from model.whisper.network import Cache, Whisper
from model.whisper.quantised import missing_instructions, quantise

N = TypeVar("N", bound=nn.Module)


class CommonArchitecture(Protocol):
    """The fields of a drafter's architecture that its cache needs."""

    @property
    def block(self) -> int:
        """Most candidates of a round."""
        ...

    @property
    def aux_layers(self) -> tuple[int, ...]:
        """The target's blocks whose outputs it reads."""
        ...

    @property
    def vocabulary(self) -> tuple[int, ...] | None:
        """Ids that can be proposed; None for all."""
        ...


class DrafterCache:
    """Keys and values of every slot, and the output head: the base of `model.drafting.interface.Drafter`s.

    bias: the token rules, [vocabulary]. layers: of `cache`. packed: use the CPU's fastest products.
    """

    def __init__(
        self,
        architecture: CommonArchitecture,
        whisper: Whisper,
        bias: Tensor,
        slots: int,
        *,
        layers: int,
        packed: bool,
    ) -> None:
        config, decoder = whisper.config, whisper.decoder
        self.aux_layers, self.block = architecture.aux_layers, architecture.block
        self._embedding = decoder.embedding
        heads = config.decoder_attention_heads

        def zeros(length: int) -> Tensor:
            shape = (layers, slots, heads, length, config.d_model // heads)
            return decoder.positions.new_zeros(shape)

        text, audio = (
            config.max_target_positions + architecture.block + 1,
            config.max_source_positions,
        )
        self.cache = Cache(zeros(text), zeros(text), zeros(audio), zeros(audio))
        self._ids: Tensor | None = None
        self._bias = bias
        self._head: nn.Module = decoder.head
        if architecture.vocabulary is not None:
            self._ids = torch.tensor(architecture.vocabulary, device=decoder.positions.device)
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

    def write_audio(self, pairs: list[tuple[Tensor, Tensor]], first: int) -> None:
        """Write keys and values of encoder states, a pair for each layer, to the slots from `first` on."""
        for index, (k, v) in enumerate(pairs):
            last, m = first + len(k), k.shape[2]
            self.cache.cross_keys[index, first:last, :, :m].copy_(k)
            self.cache.cross_values[index, first:last, :, :m].copy_(v)

    def write_text(self, index: int, k: Tensor, v: Tensor, positions: Tensor, first: int) -> None:
        """Write k and v [rows, n, heads, head width] of layer `index` at positions [rows, n]."""
        rows = torch.arange(first, first + len(k), device=k.device)[:, None]
        self.cache.self_keys[index][rows, :, positions] = k
        self.cache.self_values[index][rows, :, positions] = v

    def text_kv(self, index: int, rows: int, kv_len: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first `kv_len` positions of layer `index` in slots 0 … rows - 1."""
        keys, values = self.cache.self_keys[index], self.cache.self_values[index]
        return keys[:rows, :, :kv_len], values[:rows, :, :kv_len]

    def audio_kv(self, index: int, rows: int, encoder_len: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first `encoder_len` states of layer `index` in slots 0 … rows - 1."""
        keys, values = self.cache.cross_keys[index], self.cache.cross_values[index]
        return keys[:rows, :, :encoder_len], values[:rows, :, :encoder_len]

    def propose(self, hidden: Tensor, choose: Choose, at: int) -> Tensor:
        """Have `choose` pick the candidates from `at` on, from hidden states [rows, n, width]."""
        return choose(self._head(hidden) + self._bias, self._ids, at)


def use_packed_linears(module: nn.Module) -> None:
    """Use the CPU's fastest products: a draft need not be exact."""
    if missing_instructions():
        pack(module, rows=FEW_ROWS)
    else:
        quantise(module)


def cut_head(whisper: Whisper, ids: Tensor) -> nn.Sequential:
    """The target's output head for the tokens `ids` alone, in a container so that it can be packed."""
    weight = whisper.decoder.embedding.weight
    cut = nn.Linear(weight.shape[1], len(ids), bias=False, device="meta")
    cut.weight = nn.Parameter(weight[ids].clone(), requires_grad=False)
    return nn.Sequential(cut)


def frozen_copy(network: N, whisper: Whisper, *, packed: bool) -> N:
    """A frozen copy with the target's device and dtype; packed: see `use_packed_linears`.

    It is a copy because packing leaves a network without weights to save.
    """
    positions = whisper.decoder.positions
    frozen = copy.deepcopy(network).to(positions.device, positions.dtype)
    if packed:
        use_packed_linears(frozen)
    return frozen.eval().requires_grad_(requires_grad=False)
