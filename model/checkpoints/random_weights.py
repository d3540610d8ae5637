"""Checkpoints of Whisper's published sizes with random weights, for measuring time and memory."""

import torch
from tokenizers import Tokenizer, decoders, models
from torch import Tensor
from transformers import WhisperConfig

from model.checkpoints.load import Checkpoint
from model.whisper.alignment import read_heads
from model.whisper.network import Whisper
from model.whisper.tokens import TokenTable

# Width, layers (of the encoder and of the decoder), heads, mel bins, vocabulary, as published.
SHAPES: dict[str, tuple[int, int, int, int, int, int]] = {
    "tiny": (384, 4, 4, 6, 80, 51_865),
    "base": (512, 6, 6, 8, 80, 51_865),
    "small": (768, 12, 12, 12, 80, 51_865),
    "medium": (1024, 24, 24, 16, 80, 51_865),
    "large-v2": (1280, 32, 32, 20, 80, 51_865),
    "large-v3": (1280, 32, 32, 20, 128, 51_866),
    "large-v3-turbo": (1280, 32, 4, 20, 128, 51_866),
}
_EOT = 50_257
# These scales make transcripts vary. With small weights the embedding of the newest token, which is also
# the output head, outweighs all else; and what all positions share (the audio's mean, the mean of GELU)
# outweighs their differences. In either case every transcript would repeat one token.
_SCALE = 3.0
_SCALES = {"decoder.positions": 9.0, ".cross.out.weight": 0.9}


def shape_config(name: str, **changes: int) -> WhisperConfig:
    """The configuration of one of SHAPES; `changes` are fields of WhisperConfig."""
    width, encoder, decoder, heads, bins, vocabulary = SHAPES[name]
    fields = {
        "vocab_size": vocabulary,
        "num_mel_bins": bins,
        "d_model": width,
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width,
        "max_source_positions": 1500,
        "max_target_positions": 448,
    } | changes
    eot = _first_special(fields["vocab_size"])
    fields |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), eot)
    return WhisperConfig(**fields, decoder_start_token_id=eot + 1)


def random_checkpoint(
    name: str,
    config: WhisperConfig,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Checkpoint:
    """A checkpoint called `name`, its weights drawn on `device`, in seconds for every size.

    It is deterministic for a device. Raises torch.OutOfMemoryError.
    """
    generator = torch.Generator(device).manual_seed(seed)
    with torch.device("meta"):
        shapes = Whisper(config).state_dict()
    del shapes["decoder.head.weight"]  # it is the embedding

    def make(key: str, shape: torch.Size) -> Tensor:
        weights = torch.empty(shape, device=device, dtype=dtype)
        if "norm" in key:
            return weights.fill_(1.0 if key.endswith("weight") else 0.0)
        if len(shape) == 1:
            return weights.zero_()
        scale = next((s for end, s in _SCALES.items() if key.endswith(end)), _SCALE)
        weights.normal_(std=scale / weights[0].numel() ** 0.5, generator=generator)
        if key.endswith("mlp_out.weight"):
            weights -= weights.mean(1, keepdim=True)
        return weights

    made = {key: make(key, tensor.shape) for key, tensor in shapes.items()}
    heads = read_heads(None, config.decoder_layers, config.decoder_attention_heads)
    return Checkpoint(name, "random weights", config, _tokens(config.vocab_size), made, heads)


def _first_special(vocabulary: int) -> int:
    return min(_EOT, vocabulary - 8)


def _tokens(vocabulary: int) -> TokenTable:
    """Whisper's ids without its words: every text is empty. In a small vocabulary the last ids are special."""
    first = _first_special(vocabulary)
    eot, sot, english, translate, transcribe, sot_previous, silence, plain = range(first, first + 8)
    tokenizer = Tokenizer(models.BPE(vocab={}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return TokenTable(
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        sot=sot,
        eot=eot,
        sot_previous=sot_previous,
        no_speech=silence,
        no_timestamps=plain,
        translate=translate,
        transcribe=transcribe,
        languages={"en": english},
        suppressed=tuple(range(sot, vocabulary)),
        suppressed_first=(eot,),
    )
