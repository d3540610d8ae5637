"""Speech-Draft: candidates one after another, from fused features of the target (EAGLE-ASR III-B).

The entry at position p combines the target's features at p - 1, fused from a low, a middle and a high
decoder block, with the embedding of the token at p. One decoder block over the entries so far and the
audio turns it into the hidden state that predicts the token at p + 1. Behind the anchor, where the target
has no features yet, the drafter's hidden state at p - 1 takes their place. Embedding and output head are
the target's, frozen; the head may be cut to the most frequent tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import WhisperConfig

from model.drafting.drafter_cache import DrafterCache, frozen_copy
from model.drafting.interface import Choose
from model.drafting.parallel import DrafterLayer, angles, block_input, rotate
from model.whisper.network import Whisper
from model.whisper.slots import Slots

_EPSILON = 1e-5  # of the layer norm


@dataclass(frozen=True, slots=True)
class SpeechArchitecture:
    """The shape of a Speech-Draft.

    block: most candidates of a round. aux_layers: the target's decoder blocks whose outputs are fused,
    zero-based and ascending; the paper takes a low, a middle and a high one. vocabulary: ids that
    can be proposed, ascending; None for all.
    """

    block: int
    aux_layers: tuple[int, ...]
    vocabulary: tuple[int, ...] | None = None


class SpeechDraft(nn.Module):
    """The network. Callers run its parts in turn: each step needs the one before."""

    def __init__(self, config: WhisperConfig, architecture: SpeechArchitecture) -> None:
        super().__init__()
        width, heads = config.d_model, config.decoder_attention_heads
        self.architecture = architecture
        self.fuse = nn.Linear(len(architecture.aux_layers) * width, width, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.layer = DrafterLayer(width, heads, config.decoder_ffn_dim)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)

    def enter(self, before: Tensor, embedded: Tensor) -> Tensor:
        """Entries [rows, n, width].

        before: [rows, n, width], at the position before each entry: the target's features through `fuse`,
        or this network's hidden state; zeros before the first position. embedded: [rows, n, width],
        embeddings of the tokens.
        """
        out: Tensor = self.combine(torch.cat((before, embedded), -1))
        return out

    def project(self, entries: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v [rows, n, heads, head width] of entries at absolute positions [rows, n]."""
        q, k, v = self.layer.attention.split(self.layer.attention_norm(entries))
        by = angles(positions, q.shape[-1])
        return rotate(q, by), rotate(k, by), v

    def encode(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [rows, heads, m, head width] of encoder states."""
        return self.layer.cross.project(states)

    def forward(
        self,
        entries: Tensor,
        q: Tensor,
        text: tuple[Tensor, Tensor],
        text_mask: Tensor,
        acoustic: tuple[Tensor, Tensor],
        audio_mask: Tensor,
    ) -> Tensor:
        """Hidden states [rows, n, width]; the output head reads them through `norm`.

        q: of the entries, as `project` gives it. text: keys and values [rows, heads, m, head width] of all
        entries, these included, under text_mask [rows, 1, n, m]. acoustic: the same of encoder states,
        under audio_mask [rows, 1, 1, states]. Masks are bool; True: attend.
        """
        layer = self.layer
        x = entries + layer.attention.attend(q.transpose(1, 2), *text, text_mask)
        x = x + layer.cross(layer.cross_norm(x), *acoustic, audio_mask)
        out: Tensor = x + layer.mlp_out(layer.mlp_in(layer.mlp_norm(x)))
        return out


class SlotSpeechDraft(DrafterCache):
    """A Speech-Draft over slots, as `model.drafting.interface.Drafter`: its network and its cache.

    A target pass overwrites the entries that drafting wrote at its positions, from the target's own
    features. Entries of rejected candidates lie at or behind the next anchor, where the next draft or pass
    writes before any read.
    """

    def __init__(
        self, network: SpeechDraft, whisper: Whisper, bias: Tensor, slots: int, *, packed: bool
    ) -> None:
        super().__init__(network.architecture, whisper, bias, slots, layers=1, packed=packed)
        self._network = frozen_copy(network, whisper, packed=packed)
        # Index p has the fused features of position p - 1; those before the first position are 0.
        length, width = self.cache.self_keys.shape[3] + 1, whisper.config.d_model
        self._fused = whisper.decoder.positions.new_zeros(slots, length, width)

    def encode(self, states: Tensor, first: int) -> None:
        """Cache encoder states [rows, m, width] of the slots from `first` on."""
        self.write_audio([self._network.encode(states)], first)

    def remember(self, features: Tensor, tokens: Tensor, positions: Tensor, first: int) -> None:
        """Cache the entries of a target pass; rejected positions are overwritten later."""
        rows = torch.arange(first, first + len(features), device=features.device)[:, None]
        self._fused[rows, positions + 1] = self._network.fuse(features)
        self._enter(self._fused[rows, positions], tokens, positions, first)

    def move(self, source: int, target: int, positions: int, states: int) -> None:
        """Copy the first `positions` and `states` of slot `source` over slot `target`."""
        super().move(source, target, positions, states)
        self._fused[target, : positions + 1] = self._fused[source, : positions + 1]

    def clear(self, first: int, last: int) -> None:
        """Zero slots first … last - 1."""
        super().clear(first, last)
        self._fused[first:last].zero_()

    def draft(
        self, slots: Slots, rows: int, count: int, kv_len: int, encoder_len: int, choose: Choose
    ) -> None:
        """Propose candidates of slots 0 … rows - 1, one a step; each is the next step's token."""
        lengths, audio_len = slots.lengths[:rows, None], slots.audio_len[:rows]
        device = lengths.device
        cached = torch.arange(kv_len, device=device)
        audio_mask = torch.arange(encoder_len, device=device) < audio_len[:, None, None, None]
        acoustic = self.audio_kv(0, rows, encoder_len)
        before = self._fused[torch.arange(rows, device=device)[:, None], lengths]
        tokens = slots.anchors[:rows, None]
        for step in range(count):
            positions = lengths + step
            entries, q = self._enter(before, tokens, positions, 0)
            text_mask = cached <= positions[:, None, :, None]
            before = self._network(
                entries, q, self.text_kv(0, rows, kv_len), text_mask, acoustic, audio_mask
            )
            tokens = self.propose(self._network.norm(before), choose, step)

    def _enter(
        self, before: Tensor, tokens: Tensor, positions: Tensor, first: int
    ) -> tuple[Tensor, Tensor]:
        """Cache the keys and values of entries; returns the entries and their queries."""
        entries = self._network.enter(before, self._embedding(tokens))
        q, k, v = self._network.project(entries, positions)
        self.write_text(0, k, v, positions, first)
        return entries, q


def from_target(whisper: Whisper, architecture: SpeechArchitecture, block: int) -> SpeechDraft:
    """An untrained Speech-Draft: its layer is a copy of the target's decoder block `block`.

    `fuse` is that block's `block_input`; an entry is the sum of features and embedding.
    """
    network = SpeechDraft(whisper.config, architecture)
    network.layer.load_state_dict(whisper.decoder.layers[block].state_dict())
    network.norm.load_state_dict(whisper.decoder.norm.state_dict())
    width = whisper.config.d_model
    with torch.no_grad():
        network.fuse.weight.copy_(block_input(block, architecture.aux_layers, width))
        network.combine.weight.copy_(torch.eye(width).repeat(1, 2))
    return network
