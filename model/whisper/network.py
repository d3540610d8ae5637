"""Whisper's encoder and decoder over static caches, with a mask by absolute position.

It computes what `transformers.WhisperForConditionalGeneration` computes, for rows of different lengths:
a pass takes any number of new tokens per row, each token attends to the cached positions up to its own,
and a rollback is a shorter length. (A causal mask aligned to the top left, as in Whisper's own attention,
cannot verify several tokens after a cached prefix.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import WhisperConfig

from model.whisper.attention import Attention, CrossAttention, Mixing, neighbours
from model.whisper.kernels import FEW_ROWS, MANY_ROWS, LinearGelu, pack
from model.whisper.quantised import (
    MIXED_IN,
    additive_mask,
    quantise,
    write_keys,
)
from model.whisper.window import Window

_EPSILON = 1e-5  # of the layer norms


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values of every slot; static buffers.

    self_keys, self_values: [layers, slots, heads, positions, head width].
    cross_keys, cross_values: [layers, slots, heads, encoder states, head width].
    """

    self_keys: Tensor
    self_values: Tensor
    cross_keys: Tensor
    cross_values: Tensor

    @classmethod
    def allocate(
        cls,
        config: WhisperConfig,
        slots: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        spare: int = 0,
    ) -> "Cache":
        """Zeros for `slots` utterances, each with `spare` positions after its context.

        Raises torch.OutOfMemoryError.
        """
        heads = config.decoder_attention_heads
        width = config.d_model // heads

        def zeros(*last: int) -> Tensor:
            shape = (config.decoder_layers, slots, heads, *last)
            return torch.zeros(shape, device=device, dtype=dtype)

        def keys(positions: int) -> Tensor:
            if dtype is MIXED_IN:  # the layout that quantised attention needs
                return zeros(width, positions).transpose(-1, -2)
            return zeros(positions, width)

        positions, states = config.max_target_positions + spare, config.max_source_positions
        return cls(keys(positions), zeros(positions, width), keys(states), zeros(states, width))

    @staticmethod
    def bytes_for(config: WhisperConfig, slots: int, dtype: torch.dtype, layers: int) -> int:
        """Bytes of a cache of `layers` layers without spare positions."""
        positions = config.max_target_positions + config.max_source_positions
        return int(2 * layers * slots * positions * config.d_model * dtype.itemsize)

    def rows(self, first: int, last: int) -> "Cache":
        """The same memory, restricted to slots first … last - 1."""
        return Cache(
            self.self_keys[:, first:last],
            self.self_values[:, first:last],
            self.cross_keys[:, first:last],
            self.cross_values[:, first:last],
        )

    def move(self, source: int, target: int, positions: int, states: int) -> None:
        """Copy the first `positions` and `states` of slot `source` over slot `target`."""
        for tensor in (self.self_keys, self.self_values):
            tensor[:, target, :, :positions] = tensor[:, source, :, :positions]
        for tensor in (self.cross_keys, self.cross_values):
            tensor[:, target, :, :states] = tensor[:, source, :, :states]

    def clear(self) -> None:
        """Zero everything."""
        for tensor in (self.self_keys, self.self_values, self.cross_keys, self.cross_values):
            tensor.zero_()


class EncoderLayer(nn.Module):
    """One pre-norm block."""

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        width = config.d_model
        self.attention_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.attention = Attention(width, config.encoder_attention_heads)
        self.mlp_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.mlp_in = LinearGelu(width, config.encoder_ffn_dim)
        self.mlp_out = nn.Linear(config.encoder_ffn_dim, width)

    def forward(self, x: Tensor, weights: Tensor | None) -> Tensor:
        """[rows, states, width] → the same. weights: [states], added to the scores of each."""
        q, k, v = (part.transpose(1, 2) for part in self.attention.split(self.attention_norm(x)))
        x = x + self.attention.attend_all(q, k, v, weights)
        out: Tensor = x + self.mlp_out(self.mlp_in(self.mlp_norm(x)))
        return out


class Encoder(nn.Module):
    """Log-mel to acoustic states."""

    one_by_one = False  # convolve each row alone: for some widths a batch sums in another order

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        width = config.d_model
        self.conv1 = nn.Conv1d(config.num_mel_bins, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.empty(config.max_source_positions, width))
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.norm = nn.LayerNorm(width, eps=_EPSILON)

    def forward(self, mel: Tensor, window: Window) -> Tensor:
        """[rows, bins, 2 * window.convolved] → [rows, window.states, width]."""
        batches = torch.split(mel, 1) if self.one_by_one else (mel,)
        x = torch.cat([self._convolved(batch) for batch in batches]).transpose(1, 2)
        if window.sampled:
            own, edge = x[:, : window.own], x[:, window.own :]
            # The last own state is silence, at the row's own level.
            silence = own[:, -1:].expand(-1, window.states - window.own - 1, -1)
            x = torch.cat((own, silence, edge), 1)
        x = x + self.positions[window.positions]
        for layer in self.layers:
            x = layer(x, window.weights if window.sampled else None)
        out: Tensor = self.norm(x)
        return out

    def _convolved(self, mel: Tensor) -> Tensor:
        """[rows, bins, 2 * states] → [rows, width, states]."""
        return functional.gelu(self.conv2(functional.gelu(self.conv1(mel))))


class DecoderLayer(nn.Module):
    """The weights of one block; `Decoder.forward` runs it."""

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        width, heads = config.d_model, config.decoder_attention_heads
        self.attention_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.attention = Attention(width, heads)
        self.cross_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.cross = CrossAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.mlp_in = LinearGelu(width, config.decoder_ffn_dim)
        self.mlp_out = nn.Linear(config.decoder_ffn_dim, width)


class Decoder(nn.Module):
    """Tokens to hidden states over a `Cache`."""

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        width = config.d_model
        self.embedding = nn.Embedding(config.vocab_size, width)
        self.positions = nn.Parameter(torch.empty(config.max_target_positions, width))
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.head = nn.Linear(width, config.vocab_size, bias=False)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        weights: Tensor,
        cache: Cache,
        kv_len: int,
        encoder_lens: Sequence[int],
        aux_layers: tuple[int, ...] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """One pass over `n` new tokens a row → normalised hidden states [rows, n, width].

        The second result is the residual stream behind each block of `aux_layers`, [rows, n, aux layers *
        width], or None without any.

        tokens: [rows, n] int64. lengths: [rows] int64, cached positions before the new tokens; the pass
        writes the keys and values of the new tokens behind them. weights: [rows, encoder states],
        added to the scores of each; minus infinity: not seen. cache: exactly these rows. kv_len: static
        bound of attention to cached positions, at least max(lengths) + n. encoder_lens: that of
        attention to encoder states, for each row.
        """
        positions = lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        # A block may overshoot the context; what it writes there is never accepted.
        clamped = positions.clamp(max=self.positions.shape[0] - 1)
        x = self.embedding(tokens) + self.positions[clamped]
        # [rows, 1, n, kv_len]: every token attends to the absolute positions up to its own.
        self_mask = torch.arange(kv_len, device=tokens.device) <= positions[:, None, :, None]
        encoder_len, parts = max(encoder_lens), list[tuple[slice, int]]()
        if cache.self_keys.dtype is MIXED_IN:
            self_mask = additive_mask(self_mask)
            # The number of keys orders the sums: a row's own number, whatever the others'.
            parts = neighbours(encoder_lens)
        cross_mask = weights[:, None, None, :encoder_len]
        rows = torch.arange(tokens.shape[0], device=tokens.device)[:, None]
        aux_hidden: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, DecoderLayer)
            keys, values = cache.self_keys[index], cache.self_values[index]
            q, k, v = layer.attention.split(layer.attention_norm(x))
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            x = x + layer.attention.attend(
                q.transpose(1, 2), keys[:, :, :kv_len], values[:, :, :kv_len], self_mask
            )
            x = x + layer.cross(
                layer.cross_norm(x),
                cache.cross_keys[index, :, :, :encoder_len],
                cache.cross_values[index, :, :, :encoder_len],
                cross_mask,
                parts,
            )
            x = x + layer.mlp_out(layer.mlp_in(layer.mlp_norm(x)))
            if index in aux_layers:
                aux_hidden.append(x)
        return self.norm(x), torch.cat(aux_hidden, -1) if aux_hidden else None

    def logits(self, hidden: Tensor) -> Tensor:
        """[…, width] → […, vocabulary]."""
        out: Tensor = self.head(hidden)
        return out

    def write_cross(self, states: Tensor, cache: Cache) -> None:
        """Write the cross-attention keys and values of encoder states [rows, m, width] to `cache`."""
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, DecoderLayer)
            k, v = layer.cross.project(states)
            keys = cache.cross_keys[index, :, :, : states.shape[1]]
            if keys.dtype is MIXED_IN:
                write_keys(keys, k)
            else:
                keys.copy_(k)
            cache.cross_values[index, :, :, : states.shape[1]].copy_(v)


class Whisper(nn.Module):
    """The frozen target. int8: whether quantised.py computes it."""

    int8 = False

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    @classmethod
    def from_weights(
        cls,
        config: WhisperConfig,
        weights: dict[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
        *,
        packed: bool = False,
        int8: bool = False,
    ) -> "Whisper":
        """Build it on `device` from weights whose names must match exactly.

        The output head is the embedding. packed: use the CPU's faster products (kernels.py). int8: build
        the int8 target (quantised.py), which is another target; dtype float32 on the CPU only.
        """
        with torch.device("meta"):
            whisper = cls(config)
        placed = {key: value.to(device, dtype) for key, value in weights.items()}
        placed["decoder.head.weight"] = placed["decoder.embedding.weight"]
        whisper.load_state_dict(placed, assign=True)
        del placed  # packing replaces these weights; the dictionary would keep them alive
        if int8:
            whisper.quantise()
        elif packed:
            pack(whisper.encoder, rows=MANY_ROWS)
            pack(whisper.decoder, rows=FEW_ROWS)
        return whisper.requires_grad_(requires_grad=False).eval()

    @property
    def cache_dtype(self) -> torch.dtype:
        """The dtype of the keys and values in its cache."""
        return MIXED_IN if self.int8 else self.decoder.positions.dtype

    def quantise(self) -> None:
        """Become the int8 target; the float32 weights of every linear layer are dropped."""
        quantise(self)
        for module in self.modules():
            if isinstance(module, Mixing):
                module.mixed_in = MIXED_IN
        self.int8 = self.encoder.one_by_one = True
