"""The parallel drafter: all candidates of a block in one pass (Whisper-Flash 3.2, A.2).

A block is the anchor's embedding and one learned mask for each candidate. In every layer its
queries attend, in one softmax, to the history (what the target computed at accepted positions) and
to the block itself, both ways; then to the audio, through keys and values of the drafter's own.
RoPE marks text positions, so that cached history keys keep theirs. Embedding and output head are
the target's, frozen; the head may be cut to the most frequent tokens.
This file knows no requests and no acceptance.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import WhisperConfig

from model.drafting.drafter_cache import DrafterCache, frozen_copy
from model.drafting.interface import Choose
from model.whisper.kernels import LinearGelu
from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE
from model.whisper.network import Attention, CrossAttention, Whisper
from model.whisper.slots import Slots

_EPSILON = 1e-5  # of the layer norms
_ROPE_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Architecture:
    """What must be known to build a drafter before its weights are read.

    layers: how many. block: candidates of a pass. aux layers: the target's decoder blocks whose outputs
    are the history, zero-based and ascending. vocabulary: ids that can be proposed, ascending;
    None for all. rope: text positions by rotation, else by the target's learned embeddings, as
    Whisper has them. history, audio: the two memories; the paper's ablations leave one out.
    """

    layers: int
    block: int
    aux_layers: tuple[int, ...]
    vocabulary: tuple[int, ...] | None = None
    rope: bool = True
    history: bool = True
    audio: bool = True


def spread_aux_layers(blocks: int, count: int = 5) -> tuple[int, ...]:
    """Evenly spread decoder blocks; of large-v3's 32 they are 1, 8, 15, 22 and 29, as in A.2.

    Of few blocks, from the first to the last.
    """
    first, last = (1, blocks - 3) if blocks > count + 2 else (0, blocks - 1)
    step = (last - first) / (count - 1)
    return tuple(sorted({round(first + index * step) for index in range(count)}))


def audio_states(samples: int, window: int) -> int:
    """Encoder states that a drafter hears: those of the audio, rounded up to whole seconds.

    Whisper's window goes on in silence, which tells a drafter nothing and costs it time.
    """
    return min(window, -(-samples // SAMPLE_RATE) * SAMPLE_RATE // SAMPLES_PER_STATE)


Angles = tuple[Tensor, Tensor]  # cosines and sines, float32 [rows, n, 1, head width / 2]


def angles(positions: Tensor, width: int) -> Angles:
    """What `rotate` turns heads of that width by, at positions [rows, n] int64."""
    half = width // 2
    # Phases in float32, whatever the dtype (A.2).
    exponents = torch.arange(half, device=positions.device, dtype=torch.float32) / half
    phases = positions[..., None, None].float() * _ROPE_BASE**-exponents
    return phases.cos(), phases.sin()


def rotate(x: Tensor, by: Angles) -> Tensor:
    """Rotary position embedding: x [rows, n, heads, width]."""
    half = x.shape[-1] // 2
    cos, sin = by
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
    """The network: history, audio and anchors in, candidates' hidden states out."""

    def __init__(self, config: WhisperConfig, architecture: Architecture) -> None:
        super().__init__()
        width, heads = config.d_model, config.decoder_attention_heads
        self.architecture = architecture
        self._head_width = width // heads
        # Every layer has a projection of its own: each may begin as the state that enters the
        # target's block from which the layer began.
        self.history = nn.Linear(
            len(architecture.aux_layers) * width, architecture.layers * width, bias=False
        )
        self.masks = nn.Parameter(torch.zeros(architecture.block, width))
        self.layers = nn.ModuleList(
            DrafterLayer(width, heads, config.decoder_ffn_dim) for _ in range(architecture.layers)
        )
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.places = (
            None if architecture.rope else nn.Embedding(config.max_target_positions, width)
        )

    def remember(self, features: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """History keys and values per layer, [rows, n, heads, head width], of the target's aux layers.

        features: [rows, n, aux layers * width], concatenated; positions: [rows, n], absolute.
        """
        pairs = []
        by = self._angles(positions)
        states = self.history(features).chunk(len(self.layers), -1)
        for layer, state in zip(self.layers, states, strict=True):
            assert isinstance(layer, DrafterLayer)
            _, k, v = layer.attention.split(layer.attention_norm(self._placed(state, positions)))
            pairs.append((self._turned(k, by), v))
        return pairs

    def encode(self, states: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Acoustic keys and values per layer, [rows, heads, m, head width], of encoder states."""
        pairs = []
        for layer in self.layers:
            assert isinstance(layer, DrafterLayer)
            pairs.append(layer.cross.project(states))
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
        """Normalised hidden states of the masks: [rows, anchors, block, width].

        Blocks of one row share its memories and are blind to each other. anchors: [rows, anchors,
        width], embeddings. positions: [rows, anchors]. history: per layer keys and values [rows,
        heads, m, head width], of which each anchor sees those where `past` [rows, anchors, m] is
        true. acoustic: the same over encoder states, seen where `audible` [rows, 1, 1, states] is.
        """
        rows, count, width = anchors.shape
        block = self.architecture.block + 1
        x = torch.cat((anchors[:, :, None], self.masks.expand(rows, count, -1, -1)), 2)
        places = positions[..., None] + torch.arange(block, device=x.device)
        x, places = x.view(rows, -1, width), places.view(rows, -1)
        x = self._placed(x, places)
        seen, by = self._seen(past, block), self._angles(places)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, DrafterLayer)
            q, k, v = layer.attention.split(layer.attention_norm(x))
            keys, values = self._turned(k, by).transpose(1, 2), v.transpose(1, 2)
            if self.architecture.history:
                keys = torch.cat((history[index][0], keys), 2)
                values = torch.cat((history[index][1], values), 2)
            q = self._turned(q, by).transpose(1, 2)
            x = x + layer.attention.attend(q, keys, values, seen)
            if self.architecture.audio:
                x = x + layer.cross(layer.cross_norm(x), *acoustic[index], audible)
            x = x + layer.mlp_out(layer.mlp_in(layer.mlp_norm(x)))
        out: Tensor = self.norm(x.view(rows, count, block, width)[:, :, 1:])
        return out

    def _seen(self, past: Tensor, block: int) -> Tensor:
        """[rows, 1, anchors * block, m + anchors * block]: the anchor's past, and its own block."""
        rows, count, _ = past.shape
        own = torch.eye(count, dtype=torch.bool, device=past.device)
        own = own.repeat_interleave(block, 0).repeat_interleave(block, 1).expand(rows, -1, -1)
        if self.architecture.history:
            own = torch.cat((past.repeat_interleave(block, 1), own), -1)
        return own[:, None]

    def _placed(self, x: Tensor, positions: Tensor) -> Tensor:
        """With the embedding of each position added, where those are absolute."""
        if self.places is None:
            return x
        # A block may overshoot the context; what it proposes there is never accepted.
        placed: Tensor = self.places(positions.clamp(max=self.places.num_embeddings - 1))
        return x + placed

    def _angles(self, positions: Tensor) -> Angles | None:
        """None where positions are absolute: there nothing turns."""
        return angles(positions, self._head_width) if self.places is None else None

    def _turned(self, x: Tensor, by: Angles | None) -> Tensor:
        return x if by is None else rotate(x, by)


class SlotDrafter(DrafterCache):
    """A parallel drafter over slots: its network, and the history and audio of every slot.

    Satisfies `model.drafting.interface.Drafter`. The network's products are packed where the target's are.
    """

    def __init__(
        self, network: ParallelDrafter, whisper: Whisper, bias: Tensor, slots: int, *, packed: bool
    ) -> None:
        plan = network.architecture
        super().__init__(plan, whisper, bias, slots, layers=plan.layers, packed=packed)
        self._network = frozen_copy(network, whisper, packed=packed)

    def encode(self, states: Tensor, first: int) -> None:
        """Project encoder states [rows, m, width] for the slots from `first` on."""
        self._keep_encoder(self._network.encode(states), first)

    def remember(
        self,
        features: Tensor,
        tokens: Tensor,  # noqa: ARG002  (its history is what the target made of them)
        positions: Tensor,
        first: int,
    ) -> None:
        """Write history at absolute positions [rows, n]; what is rejected is overwritten later."""
        for index, (k, v) in enumerate(self._network.remember(features, positions)):
            self._keep_text(index, k, v, positions, first)

    def draft(
        self, slots: Slots, rows: int, count: int, kv_len: int, encoder_len: int, choose: Choose
    ) -> None:
        """All candidates at once, for slots 0 … rows - 1."""
        lengths, audio_len = slots.lengths[:rows], slots.audio_len[:rows]
        device = lengths.device
        past = torch.arange(kv_len, device=device) < lengths[:, None, None]
        audible = torch.arange(encoder_len, device=device) < audio_len[:, None, None, None]
        layers = range(len(self._network.layers))
        hidden = self._network(
            self._embedding(slots.anchors[:rows, None]),
            lengths[:, None],
            [self._text(i, rows, kv_len) for i in layers],
            past,
            [self._encoder_len(i, rows, encoder_len) for i in layers],
            audible,
        )[:, 0]
        self._name(hidden[:, :count], choose, 0)


def entering(block: int, aux_layers: tuple[int, ...], width: int) -> Tensor:
    """Of aux layers the state that enters the target's block `block`, where it is tapped, else their mean.

    As a linear map, [width, aux layers * width].
    """
    shares = [float(tap == block - 1) for tap in aux_layers]
    if block - 1 not in aux_layers:
        shares = [1 / len(aux_layers)] * len(aux_layers)
    return torch.cat([share * torch.eye(width) for share in shares], 1)


def from_target(
    whisper: Whisper, architecture: Architecture, blocks: tuple[int, ...]
) -> ParallelDrafter:
    """A fresh drafter whose layers begin as the target's decoder blocks `blocks`.

    Each layer's history begins as the state that enters its block, where that is tapped, else as
    the mean of the aux layers; the masks as small noise.
    """
    assert len(blocks) == architecture.layers
    network = ParallelDrafter(whisper.config, architecture)
    for layer, block in zip(network.layers, blocks, strict=True):
        layer.load_state_dict(whisper.decoder.layers[block].state_dict())
    network.norm.load_state_dict(whisper.decoder.norm.state_dict())
    width, aux_layers = whisper.config.d_model, architecture.aux_layers
    with torch.no_grad():
        for block, start in zip(blocks, network.history.weight.chunk(len(blocks)), strict=True):
            start.copy_(entering(block, aux_layers, width))
        nn.init.normal_(network.masks, std=0.02)
        if network.places is not None:
            network.places.weight.copy_(whisper.decoder.positions)
    return network
