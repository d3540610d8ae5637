"""A reading of the whole utterance as draft: one cheap pass over the encoder's states, no loop.

A small network with a CTC head (Graves et al. 2006): it names a token or nothing for every 40 ms,
and the names collapse to a text. The head is the target's frozen token embedding and a blank. The
text is verified and re-aligned like a previous hypothesis; nothing it says can change a transcript.
This file knows no requests and no acceptance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import WhisperConfig

from model.drafting.drafter_cache import cut_head, frozen_copy, use_packed_linears
from model.whisper.kernels import MANY_ROWS
from model.whisper.network import EncoderLayer, Whisper

_EPSILON = 1e-5  # of the layer norms
STRIDE = 2  # encoder states to a step: 40 ms
NOTHING = -1  # stands where no token is read
_REACH = 15  # steps of the convolution that tells neighbours apart


@dataclass(frozen=True, slots=True)
class ReaderArchitecture:
    """layers: how many. vocabulary: ids that can be read, ascending."""

    layers: int
    vocabulary: tuple[int, ...]


class ReaderLayer(nn.Module):
    """A depthwise convolution for place, then one of the encoder's blocks."""

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        width = config.d_model
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.place = nn.Conv1d(width, width, _REACH, padding=_REACH // 2, groups=width)
        self.block = EncoderLayer(config)

    def forward(self, x: Tensor, encoder_len: Tensor) -> Tensor:
        """x: [rows, steps, width]; heard: bool [rows, steps], what holds audio."""
        block = self.block
        quiet = self.norm(x) * encoder_len[..., None]
        x = x + self.place(quiet.transpose(1, 2)).transpose(1, 2)
        parts = block.attention.split(block.attention_norm(x))
        q, k, v = (part.transpose(1, 2) for part in parts)
        x = x + block.attention.attend(q, k, v, encoder_len[:, None, None])
        out: Tensor = x + block.mlp_out(block.mlp_in(block.mlp_norm(x)))
        return out


class Reader(nn.Module):
    """The network: encoder states in, a name for every step out."""

    def __init__(self, config: WhisperConfig, architecture: ReaderArchitecture) -> None:
        super().__init__()
        width = config.d_model
        self.architecture = architecture
        self.pair = nn.Linear(STRIDE * width, width)
        self.layers = nn.ModuleList(ReaderLayer(config) for _ in range(architecture.layers))
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.blank = nn.Linear(width, 1)

    def forward(self, states: Tensor, audible: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
        """Logits [rows, steps, 1 + vocabulary]; the first is the blank's.

        states: [rows, m, width], m even; audible: bool [rows, m]. head: [rows, steps, width] →
        [rows, steps, vocabulary], the embeddings of the architecture's ids.
        """
        rows, m, width = states.shape
        x = self.pair(states.reshape(rows, m // STRIDE, STRIDE * width))
        encoder_len = audible[:, ::STRIDE]
        for layer in self.layers:
            x = layer(x, encoder_len)
        x = self.norm(x)
        return torch.cat((self.blank(x), head(x)), -1)


class SlotReader:
    """A reader in service: its network, and the target's head cut to what it can read."""

    def __init__(self, network: Reader, whisper: Whisper, bias: Tensor, *, packed: bool) -> None:
        self._network = frozen_copy(network, whisper, packed=packed, rows=MANY_ROWS)
        ids = torch.tensor(network.architecture.vocabulary, device=bias.device)
        self._head = cut_head(whisper, ids)
        self._names = functional.pad(ids, (1, 0), value=NOTHING)
        self._bias = functional.pad(bias[ids], (1, 0))
        if packed:
            use_packed_linears(self._head, rows=MANY_ROWS)

    def read(self, states: Tensor, audio_len: Tensor) -> Tensor:
        """Token ids, or `NOTHING`, of every step: int64 [rows, m / 2].

        states: [rows, m, width], of which spoken [rows] hold speech.
        """
        audible = torch.arange(states.shape[1], device=states.device) < audio_len[:, None]
        logits = self._network(states, audible, self._head) + self._bias
        return torch.where(audible[:, ::STRIDE], self._names[logits.argmax(-1)], NOTHING)


def collapse(names: Sequence[int]) -> list[int]:
    """The text of what was read step by step: repetitions are one token, `NOTHING` parts two."""
    return [name for name, _ in groupby(names) if name != NOTHING]


def from_encoder(
    whisper: Whisper, architecture: ReaderArchitecture, blocks: Sequence[int]
) -> Reader:
    """A fresh reader whose blocks begin as those of the encoder's, each pair as its mean.

    Its norm begins as the decoder's, which is what stands before the same head there.
    """
    reader = Reader(whisper.config, architecture)
    width = whisper.config.d_model
    with torch.no_grad():
        reader.pair.weight.copy_(torch.eye(width).repeat(1, STRIDE) / STRIDE)
        reader.pair.bias.zero_()
        reader.norm.load_state_dict(whisper.decoder.norm.state_dict())
        for layer, block in zip(reader.layers, blocks, strict=True):
            assert isinstance(layer, ReaderLayer)
            layer.block.load_state_dict(whisper.encoder.layers[block].state_dict())
            nn.init.normal_(layer.place.weight, std=0.02)
            assert layer.place.bias is not None
            nn.init.zeros_(layer.place.bias)
    return reader
