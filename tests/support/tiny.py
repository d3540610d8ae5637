"""A tiny seeded Whisper with a byte-level tokenizer: the whole engine in milliseconds."""

from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import WhisperConfig

from model.checkpoints.load import Checkpoint
from model.whisper.alignment import read_heads
from model.whisper.network import Whisper
from model.whisper.tokens import TokenTable

LANGUAGES = ("en", "de", "es")
SPECIALS = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{code}|>" for code in LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
VOCABULARY = 256 + len(SPECIALS)

SMALL = {
    "vocab_size": 300,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_source_positions": 100,
    "max_target_positions": 64,
}


def tiny_tokenizer() -> Tokenizer:
    """One token a byte, then the special tokens in Whisper's order."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIALS))
    return tokenizer


def tiny_tokens(*, multilingual: bool = True) -> TokenTable:
    """The table that `TokenTable.from_directory` would make of it."""
    tokenizer = tiny_tokenizer()

    def number(content: str) -> int:
        found = tokenizer.token_to_id(content)
        assert found is not None
        return int(found)

    return TokenTable(
        tokenizer=tokenizer,
        vocabulary=VOCABULARY,
        sot=number("<|startoftranscript|>"),
        eot=number("<|endoftext|>"),
        sot_previous=number("<|startofprev|>"),
        no_speech=number("<|nospeech|>"),
        no_timestamps=number("<|notimestamps|>"),
        translate=number("<|translate|>"),
        transcribe=number("<|transcribe|>"),
        languages={c: number(f"<|{c}|>") for c in LANGUAGES} if multilingual else {},
        suppressed=(1, 2, *range(number("<|startoftranscript|>"), VOCABULARY)),
        suppressed_first=(number("<|endoftext|>"),),
    )


def tiny_config(**changes: int) -> WhisperConfig:
    """Two layers, two heads, a 2 s window and 64 positions."""
    facts = SMALL | {
        "vocab_size": VOCABULARY,
        "pad_token_id": 256,
        "bos_token_id": 256,
        "eos_token_id": 256,
        "decoder_start_token_id": 257,
    }
    return WhisperConfig(**(facts | changes))


def random_weights(config: WhisperConfig, seed: int = 0, scale: float = 0.4) -> dict[str, Tensor]:
    """Weights large enough that transcripts vary; norms stay norms."""
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        shapes = Whisper(config).state_dict()
    del shapes["decoder.head.weight"]  # the embedding serves: no checkpoint has a head of its own

    def make(name: str, shape: torch.Size) -> Tensor:
        noise = torch.randn(shape, generator=generator) * scale
        if "norm" in name and name.endswith("weight"):
            return 1.0 + 0.1 * noise
        if name.endswith(("qkv.bias", "kv.bias")):
            parts = list(noise.chunk(3 if name.endswith("qkv.bias") else 2))
            parts[-2].zero_()  # keys have no bias
        return noise / (shape[-1] ** 0.5 / 8 if len(shape) > 1 else 1.0)

    weights = {name: make(name, tensor.shape) for name, tensor in shapes.items()}
    # Along the mean of the hidden states: so that transcripts end, and not all at one length.
    end = 1.6 * weights["decoder.norm.bias"]
    weights["decoder.embedding.weight"][config.eos_token_id] = end
    return weights


def tiny_checkpoint(seed: int = 0, *, multilingual: bool = True, **changes: int) -> Checkpoint:
    """A whole checkpoint without a file."""
    config = tiny_config(**changes)
    tokens = tiny_tokens(multilingual=multilingual)
    weights = random_weights(config, seed)
    heads = read_heads(None, config.decoder_layers, config.decoder_attention_heads)
    return Checkpoint("tiny-random", "tests", config, tokens, weights, heads)


def write_tokenizer(directory: Path) -> None:
    """tokenizer.json, as checkpoints carry it."""
    tiny_tokenizer().save(str(directory / "tokenizer.json"))


def changed(
    weights: dict[str, Tensor], name: str, change: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """A copy of `weights` in which one tensor is another."""
    return weights | {name: change(weights[name].clone())}


CHECKPOINT = tiny_checkpoint()
