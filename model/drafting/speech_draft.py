"""Speech-Draft: candidates one after another, from fused features of the target (EAGLE-ASR III-B).

The entry at position p joins what the target made of the token before, fused of a low, a middle and
a high decoder block, with the embedding of the token at p; one decoder block over the entries so
far and the audio makes of it the hidden state that names the token at p + 1. Behind the anchor,
where the target has not been yet, the hidden state before stands in for its features. Embedding and
output head are the target's, frozen; the head may be cut to the most frequent tokens.
This file knows no requests and no acceptance.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import WhisperConfig

from model.drafting.drafter_cache import DrafterCache, frozen_copy
from model.drafting.interface import Choose
from model.drafting.parallel import DrafterLayer, angles, entering, rotate
from model.whisper.network import Whisper
from model.whisper.slots import Slots

_EPSILON = 1e-5  # of the layer norm


@dataclass(frozen=True, slots=True)
class SpeechArchitecture:
    """What must be known to build a Speech-Draft before its weights are read.

    block: most candidates of a round. aux layers: the target's decoder blocks whose outputs are fused,
    zero-based and ascending; the paper takes a low, a middle and a high one. vocabulary: ids that
    can be proposed, ascending; None for all.
    """

    block: int
    aux_layers: tuple[int, ...]
    vocabulary: tuple[int, ...] | None = None


class SpeechDraft(nn.Module):
    """The network. Its pieces are called in turn, since each step needs the one before."""

    def __init__(self, config: WhisperConfig, architecture: SpeechArchitecture) -> None:
        super().__init__()
        width, heads = config.d_model, config.decoder_attention_heads
        self.architecture = architecture
        self.fuse = nn.Linear(len(architecture.aux_layers) * width, width, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.layer = DrafterLayer(width, heads, config.decoder_ffn_dim)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)

    def enter(self, before: Tensor, embedded: Tensor) -> Tensor:
        """Entries [rows, n, width] at some positions.

        before: [rows, n, width], at the position before each: the target's aux layers through `fuse`, or
        this network's own hidden state; zeros before the first position. embedded: [rows, n,
        width], embeddings of the tokens.
        """
        out: Tensor = self.combine(torch.cat((before, embedded), -1))
        return out

    def project(self, entries: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v [rows, n, heads, head width] of entries at absolute positions [rows, n]."""
        q, k, v = self.layer.attention.split(self.layer.attention_norm(entries))
        by = angles(positions, q.shape[-1])
        return rotate(q, by), rotate(k, by), v

    def encode(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Acoustic keys and values, [rows, heads, m, head width], of encoder states."""
        return self.layer.cross.project(states)

    def forward(
        self,
        entries: Tensor,
        q: Tensor,
        text: tuple[Tensor, Tensor],
        seen: Tensor,
        acoustic: tuple[Tensor, Tensor],
        audible: Tensor,
    ) -> Tensor:
        """Hidden states [rows, n, width]; `norm` makes of them what the output head reads.

        q: as `project` gives it, of the entries. text: keys and values [rows, heads, m, head width]
        of all entries, theirs included, of which each sees those where `seen` [rows, 1, n, m] is
        true. acoustic: the same over encoder states, seen where `audible` [rows, 1, 1, states] is.
        """
        layer = self.layer
        x = entries + layer.attention.attend(q.transpose(1, 2), *text, seen)
        x = x + layer.cross(layer.cross_norm(x), *acoustic, audible)
        out: Tensor = x + layer.mlp_out(layer.mlp_in(layer.mlp_norm(x)))
        return out


class SlotSpeechDraft(DrafterCache):
    """A Speech-Draft over slots: its network, and the entries and audio of every slot.

    Satisfies `model.drafting.interface.Drafter`. A target pass writes the entries of its positions, from the
    target's own features, over what drafting wrote there. Those of rejected candidates stand at or
    behind the next anchor, where the next draft or pass writes before anything looks.
    """

    def __init__(
        self, network: SpeechDraft, whisper: Whisper, bias: Tensor, slots: int, *, packed: bool
    ) -> None:
        super().__init__(network.architecture, whisper, bias, slots, layers=1, packed=packed)
        self._network = frozen_copy(network, whisper, packed=packed)
        # At index p the fused features of position p - 1; before the first position they are 0.
        length, width = self.cache.self_keys.shape[3] + 1, whisper.config.d_model
        self._fused = whisper.decoder.positions.new_zeros(slots, length, width)

    def encode(self, states: Tensor, first: int) -> None:
        """Project encoder states [rows, m, width] for the slots from `first` on."""
        self._keep_encoder([self._network.encode(states)], first)

    def remember(self, features: Tensor, tokens: Tensor, positions: Tensor, first: int) -> None:
        """Write the entries of a target pass; what is rejected is overwritten later."""
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
        """One candidate a step, for slots 0 … rows - 1; each is the next step's token."""
        lengths, audio_len = slots.lengths[:rows, None], slots.audio_len[:rows]
        device = lengths.device
        places = torch.arange(kv_len, device=device)
        audible = torch.arange(encoder_len, device=device) < audio_len[:, None, None, None]
        acoustic = self._encoder_len(0, rows, encoder_len)
        before = self._fused[torch.arange(rows, device=device)[:, None], lengths]
        tokens = slots.anchors[:rows, None]
        for step in range(count):
            positions = lengths + step
            entries, q = self._enter(before, tokens, positions, 0)
            seen = places <= positions[:, None, :, None]
            before = self._network(entries, q, self._text(0, rows, kv_len), seen, acoustic, audible)
            tokens = self._name(self._network.norm(before), choose, step)

    def _enter(
        self, before: Tensor, tokens: Tensor, positions: Tensor, first: int
    ) -> tuple[Tensor, Tensor]:
        """Write the keys and values of entries; gives the entries and their queries."""
        entries = self._network.enter(before, self._embedding(tokens))
        q, k, v = self._network.project(entries, positions)
        self._keep_text(0, k, v, positions, first)
        return entries, q


def from_target(whisper: Whisper, architecture: SpeechArchitecture, block: int) -> SpeechDraft:
    """A fresh Speech-Draft that begins as the target's decoder block `block`.

    The fused features begin as the state that enters that block, where it is tapped, else as the
    mean of the aux layers; an entry as the sum of features and embedding.
    """
    network = SpeechDraft(whisper.config, architecture)
    network.layer.load_state_dict(whisper.decoder.layers[block].state_dict())
    network.norm.load_state_dict(whisper.decoder.norm.state_dict())
    width = whisper.config.d_model
    with torch.no_grad():
        network.fuse.weight.copy_(entering(block, architecture.aux_layers, width))
        network.combine.weight.copy_(torch.eye(width).repeat(1, 2))
    return network
