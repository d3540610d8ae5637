"""The parallel drafter: all candidates of a block in one pass (Whisper-Flash 3.2, A.2).

A block is the anchor's embedding and one learned mask embedding for each candidate. In every layer its
queries attend, in one softmax, to the history (the target's hidden states at accepted positions) and, in
both directions, to the block itself; then to the audio, by keys and values of the drafter's own. Text
positions are rotary, so that cached keys stay valid. Embedding and output head are the target's, frozen;
the head may be cut to the most frequent tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import WhisperConfig

from model.drafting.drafter_cache import DrafterCache, frozen_copy
from model.drafting.interface import Choose
from model.whisper.attention import Attention, CrossAttention
from model.whisper.kernels import LinearGelu
from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE
from model.whisper.network import Whisper
from model.whisper.slots import Slots

_EPSILON = 1e-5  # of the layer norms
_ROPE_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Architecture:
    """The shape of a parallel drafter.

    block: candidates of a pass. aux_layers: the target's decoder blocks whose outputs are the history,
    zero-based and ascending. vocabulary: ids that can be proposed, ascending; None for all. rope: rotary
    text positions, else learned absolute ones, as in Whisper. history, audio: whether it attends to each;
    the paper's ablations leave one out.
    """

    layers: int
    block: int
    aux_layers: tuple[int, ...]
    vocabulary: tuple[int, ...] | None = None
    rope: bool = True
    history: bool = True
    audio: bool = True


def spread_aux_layers(blocks: int, count: int = 5) -> tuple[int, ...]:
    """Evenly spread decoder blocks: 1, 8, 15, 22 and 29 of large-v3's 32, as in A.2.

    For few blocks, from the first to the last.
    """
    first, last = (1, blocks - 3) if blocks > count + 2 else (0, blocks - 1)
    step = (last - first) / (count - 1)
    return tuple(sorted({round(first + index * step) for index in range(count)}))


def audio_states(samples: int, window: int) -> int:
    """Encoder states that a drafter attends to: those of the audio, rounded up to whole seconds.

    The silence behind the audio, up to the end of Whisper's window, is left out: it costs time alone.
    """
    return min(window, -(-samples // SAMPLE_RATE) * SAMPLE_RATE // SAMPLES_PER_STATE)


Angles = tuple[Tensor, Tensor]  # cosines and sines, float32 [rows, n, 1, head width / 2]


def angles(positions: Tensor, width: int) -> Angles:
    """Rotary angles for heads of `width` at positions [rows, n] int64."""
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
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return rotated.to(x.dtype)


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
    """The network: from history, audio and anchors to hidden states of the candidates."""

    def __init__(self, config: WhisperConfig, architecture: Architecture) -> None:
        super().__init__()
        width, heads = config.d_model, config.decoder_attention_heads
        self.architecture = architecture
        self._head_width = width // heads
        # A projection for each layer: it may begin as the input of the target's block that the layer
        # was copied from.
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
        """Keys and values of the history for each layer, [rows, n, heads, head width].

        features: [rows, n, aux layers * width], the target's; positions: [rows, n], absolute.
        """
        pairs = []
        by = self._angles(positions)
        states = self.history(features).chunk(len(self.layers), -1)
        for layer, state in zip(self.layers, states, strict=True):
            assert isinstance(layer, DrafterLayer)
            _, k, v = layer.attention.split(
                layer.attention_norm(self._with_positions(state, positions))
            )
            pairs.append((self._rotated(k, by), v))
        return pairs

    def encode(self, states: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values [rows, heads, m, head width] of encoder states, for each layer."""
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
        history_mask: Tensor,
        acoustic: list[tuple[Tensor, Tensor]],
        audio_mask: Tensor,
    ) -> Tensor:
        """Normalised hidden states of the candidates: [rows, anchors, block, width].

        Blocks of one row share its history and audio and do not attend to each other. anchors: embeddings,
        [rows, anchors, width]. positions: [rows, anchors]. history: keys and values [rows, heads, m, head
        width] of each layer, under history_mask [rows, anchors, m]. acoustic: the same of encoder states,
        under audio_mask [rows, 1, 1, states]. Masks are bool; True: attend.
        """
        rows, count, width = anchors.shape
        block = self.architecture.block + 1
        x = torch.cat((anchors[:, :, None], self.masks.expand(rows, count, -1, -1)), 2)
        places = positions[..., None] + torch.arange(block, device=x.device)
        x, places = x.view(rows, -1, width), places.view(rows, -1)
        x = self._with_positions(x, places)
        text_mask, by = self._text_mask(history_mask, block), self._angles(places)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, DrafterLayer)
            q, k, v = layer.attention.split(layer.attention_norm(x))
            keys, values = self._rotated(k, by).transpose(1, 2), v.transpose(1, 2)
            if self.architecture.history:
                keys = torch.cat((history[index][0], keys), 2)
                values = torch.cat((history[index][1], values), 2)
            q = self._rotated(q, by).transpose(1, 2)
            x = x + layer.attention.attend(q, keys, values, text_mask)
            if self.architecture.audio:
                x = x + layer.cross(layer.cross_norm(x), *acoustic[index], audio_mask)
            x = x + layer.mlp_out(layer.mlp_in(layer.mlp_norm(x)))
        out: Tensor = self.norm(x.view(rows, count, block, width)[:, :, 1:])
        return out

    def _text_mask(self, history_mask: Tensor, block: int) -> Tensor:
        """[rows, 1, anchors * block, m + anchors * block]: each anchor's history, and its own block."""
        rows, count, _ = history_mask.shape
        own = torch.eye(count, dtype=torch.bool, device=history_mask.device)
        own = own.repeat_interleave(block, 0).repeat_interleave(block, 1).expand(rows, -1, -1)
        if self.architecture.history:
            own = torch.cat((history_mask.repeat_interleave(block, 1), own), -1)
        return own[:, None]

    def _with_positions(self, x: Tensor, positions: Tensor) -> Tensor:
        """`x` plus the embeddings of absolute positions, if the drafter has them."""
        if self.places is None:
            return x
        # A block may overshoot the context; what it proposes there is never accepted.
        embedded: Tensor = self.places(positions.clamp(max=self.places.num_embeddings - 1))
        return x + embedded

    def _angles(self, positions: Tensor) -> Angles | None:
        """None for absolute positions: nothing is rotated."""
        return angles(positions, self._head_width) if self.places is None else None

    def _rotated(self, x: Tensor, by: Angles | None) -> Tensor:
        return x if by is None else rotate(x, by)


class SlotDrafter(DrafterCache):
    """A parallel drafter over slots, as `model.drafting.interface.Drafter`: its network and its cache."""

    def __init__(
        self, network: ParallelDrafter, whisper: Whisper, bias: Tensor, slots: int, *, packed: bool
    ) -> None:
        shape = network.architecture
        super().__init__(shape, whisper, bias, slots, layers=shape.layers, packed=packed)
        self._network = frozen_copy(network, whisper, packed=packed)

    def encode(self, states: Tensor, first: int) -> None:
        """Cache encoder states [rows, m, width] of the slots from `first` on."""
        self.write_audio(self._network.encode(states), first)

    def remember(
        self,
        features: Tensor,
        tokens: Tensor,  # noqa: ARG002  (the history has the target's hidden states)
        positions: Tensor,
        first: int,
    ) -> None:
        """Cache the history at absolute positions [rows, n]; rejected positions are overwritten later."""
        for index, (k, v) in enumerate(self._network.remember(features, positions)):
            self.write_text(index, k, v, positions, first)

    def draft(
        self, slots: Slots, rows: int, count: int, kv_len: int, encoder_len: int, choose: Choose
    ) -> None:
        """Propose all candidates of slots 0 … rows - 1 at once."""
        lengths, audio_len = slots.lengths[:rows], slots.audio_len[:rows]
        device = lengths.device
        history_mask = torch.arange(kv_len, device=device) < lengths[:, None, None]
        audio_mask = torch.arange(encoder_len, device=device) < audio_len[:, None, None, None]
        layers = range(len(self._network.layers))
        hidden = self._network(
            self._embedding(slots.anchors[:rows, None]),
            lengths[:, None],
            [self.text_kv(i, rows, kv_len) for i in layers],
            history_mask,
            [self.audio_kv(i, rows, encoder_len) for i in layers],
            audio_mask,
        )[:, 0]
        self.propose(hidden[:, :count], choose, 0)


def block_input(block: int, aux_layers: tuple[int, ...], width: int) -> Tensor:
    """A linear map [width, aux layers * width] from features to the input of the target's block `block`.

    Where the block before it is no auxiliary layer, it gives the mean of the auxiliary layers.
    """
    shares = [float(layer == block - 1) for layer in aux_layers]
    if block - 1 not in aux_layers:
        shares = [1 / len(aux_layers)] * len(aux_layers)
    return torch.cat([share * torch.eye(width) for share in shares], 1)


def from_target(
    whisper: Whisper, architecture: Architecture, blocks: tuple[int, ...]
) -> ParallelDrafter:
    """An untrained drafter whose layers are copies of the target's decoder blocks `blocks`.

    Each layer's history projection is the block's `block_input`; mask embeddings are small noise.
    """
    assert len(blocks) == architecture.layers
    network = ParallelDrafter(whisper.config, architecture)
    for layer, block in zip(network.layers, blocks, strict=True):
        layer.load_state_dict(whisper.decoder.layers[block].state_dict())
    network.norm.load_state_dict(whisper.decoder.norm.state_dict())
    width, aux_layers = whisper.config.d_model, architecture.aux_layers
    with torch.no_grad():
        for block, start in zip(blocks, network.history.weight.chunk(len(blocks)), strict=True):
            start.copy_(block_input(block, aux_layers, width))
        nn.init.normal_(network.masks, std=0.02)
        if network.places is not None:
            network.places.weight.copy_(whisper.decoder.positions)
    return network
