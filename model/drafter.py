"""The parallel drafter: all candidates of a block in one pass (Whisper-Flash 3.2, A.2).

A block is the anchor's embedding and one learned mask for each candidate. In every layer its
queries attend, in one softmax, to the history (what the target computed at accepted positions) and
to the block itself, both ways; then to the audio, through keys and values of the drafter's own.
RoPE marks text positions, so that cached history keys keep theirs. Embedding and output head are
the target's, frozen; the head may be cut to the most frequent tokens.
This file knows no requests and no acceptance.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import WhisperConfig

from model.kernels import LinearGelu, pack
from model.phases import Slots
from model.whisper import Attention, CrossAttention, Whisper

_EPSILON = 1e-5  # of the layer norms
_ROPE_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Architecture:
    """What must be known to build a drafter before its weights are read.

    layers: how many. block: candidates of a pass. taps: the target's decoder blocks whose outputs
    are the history, zero-based and ascending. vocabulary: ids that can be proposed, ascending;
    None for all.
    """

    layers: int
    block: int
    taps: tuple[int, ...]
    vocabulary: tuple[int, ...] | None = None


def spread_taps(blocks: int, count: int = 5) -> tuple[int, ...]:
    """Evenly spread decoder blocks; of large-v3's 32 they are 1, 8, 15, 22 and 29, as in A.2.

    Of few blocks, from the first to the last.
    """
    first, last = (1, blocks - 3) if blocks > count + 2 else (0, blocks - 1)
    step = (last - first) / (count - 1)
    return tuple(sorted({round(first + index * step) for index in range(count)}))


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary position embedding: x [rows, n, heads, width], positions [rows, n] int64."""
    half = x.shape[-1] // 2
    # Phases in float32, whatever the dtype (A.2).
    exponents = torch.arange(half, device=x.device, dtype=torch.float32) / half
    phases = positions[..., None, None].float() * _ROPE_BASE**-exponents
    cos, sin = phases.cos(), phases.sin()
    first, second = x[..., :half].float(), x[..., half:].float()
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return turned.to(x.dtype)


class DrafterLayer(nn.Module):
    """The weights of one layer; `ParallelDrafter` runs it."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.attention = Attention(width, heads)
        self.cross_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.cross = CrossAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.mlp_in = LinearGelu(width, inner)
        self.mlp_out = nn.Linear(inner, width)


class ParallelDrafter(nn.Module):
    """The network: history, audio and an anchor in, candidates' hidden states out."""

    def __init__(self, config: WhisperConfig, architecture: Architecture) -> None:
        super().__init__()
        width, heads = config.d_model, config.decoder_attention_heads
        self.architecture = architecture
        self.history = nn.Linear(len(architecture.taps) * width, width, bias=False)
        self.history_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.masks = nn.Parameter(torch.zeros(architecture.block, width))
        self.layers = nn.ModuleList(
            DrafterLayer(width, heads, config.decoder_ffn_dim) for _ in range(architecture.layers)
        )
        self.norm = nn.LayerNorm(width, eps=_EPSILON)

    def remember(self, features: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """History keys and values per layer, [rows, n, heads, head width], of the target's taps.

        features: [rows, n, taps * width], concatenated; positions: [rows, n], absolute.
        """
        states = self.history_norm(self.history(features))
        pairs = []
        for layer in self.layers:
            assert isinstance(layer, DrafterLayer)
            _, k, v = layer.attention.split(states)
            pairs.append((rotate(k, positions), v))
        return pairs

    def forward(
        self,
        anchors: Tensor,
        positions: Tensor,
        history: list[tuple[Tensor, Tensor]],
        past: Tensor,
        acoustic: list[tuple[Tensor, Tensor]],
        audible: Tensor,
    ) -> Tensor:
        """Normalised hidden states of the masks: [rows, block, width].

        anchors: [rows, width], embeddings. positions: [rows], of the anchors. history: per layer
        keys and values [rows, heads, m, head width], seen where `past` [rows, 1, 1, m] is true.
        acoustic: the same over encoder states, seen where `audible` is.
        """
        rows, block = len(anchors), self.architecture.block + 1
        x = torch.cat((anchors[:, None], self.masks.expand(rows, -1, -1)), 1)
        places = positions[:, None] + torch.arange(block, device=x.device)
        own = torch.ones(rows, 1, 1, block, dtype=torch.bool, device=x.device)
        seen = torch.cat((past, own), -1)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, DrafterLayer)
            q, k, v = layer.attention.split(layer.attention_norm(x))
            q, k = rotate(q, places), rotate(k, places)
            keys = torch.cat((history[index][0], k.transpose(1, 2)), 2)
            values = torch.cat((history[index][1], v.transpose(1, 2)), 2)
            x = x + layer.attention.attend(q.transpose(1, 2), keys, values, seen)
            x = x + layer.cross(layer.cross_norm(x), *acoustic[index], audible)
            x = x + layer.mlp_out(layer.mlp_in(layer.mlp_norm(x)))
        out: Tensor = self.norm(x[:, 1:])
        return out


class SlotDrafter:
    """A drafter over slots: its network, and the history and audio of every slot.

    Satisfies `model.phases.Drafter`. The network's products are packed where the target's are.
    """

    def __init__(
        self, network: ParallelDrafter, whisper: Whisper, bias: Tensor, slots: int, *, packed: bool
    ) -> None:
        architecture, config = network.architecture, whisper.config
        positions = whisper.decoder.positions
        # A copy: packing would leave the caller's network without weights to save.
        own = copy.deepcopy(network).to(positions.device, positions.dtype)
        self._network = own.eval().requires_grad_(requires_grad=False)
        self._embedding = whisper.decoder.embedding
        heads = config.decoder_attention_heads
        width = config.d_model // heads

        def zeros(length: int) -> Tensor:
            shape = (architecture.layers, slots, heads, length, width)
            return positions.new_zeros(shape)

        length = config.max_target_positions + architecture.block + 1
        self._keys, self._values = zeros(length), zeros(length)
        self._heard_keys = zeros(config.max_source_positions)
        self._heard_values = torch.zeros_like(self._heard_keys)
        everything = whisper.decoder.embedding.weight
        self._ids: Tensor | None = None
        self._bias = bias
        self._head: nn.Module = whisper.decoder.head
        self._vocabulary = len(everything)
        if architecture.vocabulary is not None:
            self._ids = torch.tensor(architecture.vocabulary, device=positions.device)
            cut = nn.Linear(config.d_model, len(self._ids), bias=False)
            cut.weight = nn.Parameter(everything[self._ids].clone(), requires_grad=False)
            self._head = nn.Sequential(cut)
            self._bias = bias[self._ids]
        if packed:
            pack(self._network)
            if self._ids is not None:
                pack(self._head)

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's blocks that make the history."""
        return self._network.architecture.taps

    @property
    def block(self) -> int:
        """Candidates of a pass."""
        return self._network.architecture.block

    def hear(self, states: Tensor, first: int) -> None:
        """Project encoder states [rows, m, width] for the slots from `first` on."""
        last, m = first + len(states), states.shape[1]
        for index, layer in enumerate(self._network.layers):
            assert isinstance(layer, DrafterLayer)
            k, v = layer.cross.project(states)
            self._heard_keys[index, first:last, :, :m].copy_(k)
            self._heard_values[index, first:last, :, :m].copy_(v)

    def remember(self, features: Tensor, positions: Tensor, first: int) -> None:
        """Write history at absolute positions [rows, n]; what is rejected is overwritten later."""
        rows = torch.arange(first, first + len(features), device=features.device)[:, None]
        for index, (k, v) in enumerate(self._network.remember(features, positions)):
            self._keys[index][rows, :, positions] = k
            self._values[index][rows, :, positions] = v

    def move(self, source: int, target: int, positions: int, states: int) -> None:
        """Copy the first `positions` and `states` of slot `source` over slot `target`."""
        for tensor in (self._keys, self._values):
            tensor[:, target, :, :positions] = tensor[:, source, :, :positions]
        for tensor in (self._heard_keys, self._heard_values):
            tensor[:, target, :, :states] = tensor[:, source, :, :states]

    def clear(self, first: int, last: int) -> None:
        """Zero slots first … last - 1."""
        for tensor in (self._keys, self._values, self._heard_keys, self._heard_values):
            tensor[:, first:last].zero_()

    def draft(
        self, slots: Slots, first: int, last: int, reach: int, heard: int
    ) -> tuple[Tensor, Tensor]:
        """Greedy candidates [rows, block], and the logits [rows, block, vocabulary] behind them."""
        lengths, states = slots.lengths[first:last], slots.states[first:last]
        device = lengths.device
        past = torch.arange(reach, device=device) < lengths[:, None, None, None]
        audible = torch.arange(heard, device=device) < states[:, None, None, None]
        layers = range(len(self._network.layers))
        hidden = self._network(
            self._embedding(slots.anchors[first:last]),
            lengths,
            [
                (self._keys[i, first:last, :, :reach], self._values[i, first:last, :, :reach])
                for i in layers
            ],
            past,
            [
                (
                    self._heard_keys[i, first:last, :, :heard],
                    self._heard_values[i, first:last, :, :heard],
                )
                for i in layers
            ],
            audible,
        )
        logits = self._head(hidden) + self._bias
        if self._ids is None:
            return logits.argmax(-1), logits
        whole = logits.new_full((*logits.shape[:-1], self._vocabulary), -torch.inf)
        whole[..., self._ids] = logits
        return self._ids[logits.argmax(-1)], whole


def from_target(
    whisper: Whisper, architecture: Architecture, blocks: tuple[int, ...]
) -> ParallelDrafter:
    """A fresh drafter whose layers begin as the target's decoder blocks `blocks`.

    The history projection begins as the mean of the taps, the masks as small noise.
    """
    assert len(blocks) == architecture.layers
    network = ParallelDrafter(whisper.config, architecture)
    for layer, block in zip(network.layers, blocks, strict=True):
        layer.load_state_dict(whisper.decoder.layers[block].state_dict())
    network.norm.load_state_dict(whisper.decoder.norm.state_dict())
    width, taps = whisper.config.d_model, len(architecture.taps)
    with torch.no_grad():
        network.history.weight.copy_(torch.eye(width).repeat(1, taps) / taps)
        nn.init.normal_(network.masks, std=0.02)
    return network
