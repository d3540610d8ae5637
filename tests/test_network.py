import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import WhisperConfig

from model.checkpoints.load import Checkpoint
from model.checkpoints.reference import as_transformers
from model.whisper.network import Cache, Whisper
from tests.support.tiny import random_weights, tiny_config, tiny_tokens

CPU = torch.device("cpu")
SHAPES = {
    "tiny-random": tiny_config(),
    "small": WhisperConfig(
        d_model=768,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        vocab_size=51_865,
    ),
    "large-v3": WhisperConfig(
        d_model=1280,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=20,
        decoder_attention_heads=20,
        encoder_ffn_dim=5120,
        decoder_ffn_dim=5120,
        num_mel_bins=128,
        vocab_size=51_866,
    ),
}


def build(
    config: WhisperConfig, weights: dict[str, Tensor], dtype: torch.dtype = torch.float32
) -> Whisper:
    return Whisper.from_weights(config, weights, CPU, dtype)


def full(rows: int, value: int) -> Tensor:
    return torch.full((rows,), value)


@pytest.mark.parametrize(
    "name",
    [
        "tiny-random",
        pytest.param("small", marks=pytest.mark.real),
        pytest.param("large-v3", marks=pytest.mark.real),
    ],
)
@torch.inference_mode()
def test_logits_equal_transformers(name: str) -> None:
    """At most 1e-4 apart in float32, prompt and continuation, random weights of each size."""
    config = SHAPES[name]
    scale = 0.4 if name == "tiny-random" else 0.1
    weights = random_weights(config, scale=scale)
    reference = as_transformers(Checkpoint(name, "tests", config, tiny_tokens(), weights, ()))
    whisper, cache = build(config, weights), Cache.allocate(config, 2, CPU, torch.float32)
    states = int(config.max_source_positions)
    mel = torch.randn(2, config.num_mel_bins, 2 * states)
    tokens = torch.randint(config.vocab_size, (2, 7))
    wanted = reference(input_features=mel, decoder_input_ids=tokens).logits
    whisper.decoder.write_cross(whisper.encoder(mel), cache)
    hidden, _ = whisper.decoder(tokens, full(2, 0), full(2, states), cache, 8, states)
    difference = (whisper.decoder.logits(hidden) - wanted).abs().max()
    assert wanted.std() > 0.1, "logits too alike to tell anything"
    assert difference <= 1e-4


class Tiny:
    """A tiny decoder over random encoder states, with the passes that the tests compare.

    In float64, so that a difference means another computation and not another rounding.
    """

    def __init__(self) -> None:
        self.config = tiny_config()
        self.whisper = build(self.config, random_weights(self.config), torch.float64)
        generator = torch.Generator().manual_seed(5)
        self.acoustic = torch.randn(4, 100, 32, generator=generator, dtype=torch.float64)

    def cache(self, rows: slice) -> Cache:
        cache = Cache.allocate(self.config, rows.stop - rows.start, CPU, torch.float64)
        # What a former utterance left behind must not matter.
        cache.self_keys.fill_(7.0)
        cache.self_values.fill_(7.0)
        self.whisper.decoder.write_cross(self.acoustic[rows], cache)
        return cache

    def run(self, tokens: Tensor, lengths: Tensor, cache: Cache, kv_len: int = 64) -> Tensor:
        states = full(len(tokens), 100)
        hidden: Tensor = self.whisper.decoder(tokens, lengths, states, cache, kv_len, 100)[0]
        return hidden


TINY = Tiny()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(0, 10_000))
@torch.inference_mode()
def test_any_split_equals_one_pass(pieces: list[int], seed: int) -> None:
    """K cached and m at once = one pass of k + m, for every way to cut it."""
    tokens = torch.randint(256, (1, sum(pieces)), generator=torch.Generator().manual_seed(seed))
    whole = TINY.run(tokens, full(1, 0), TINY.cache(slice(0, 1)))
    cache, done, outputs = TINY.cache(slice(0, 1)), 0, []
    for piece in pieces:
        outputs.append(TINY.run(tokens[:, done : done + piece], full(1, done), cache))
        done += piece
    assert torch.allclose(torch.cat(outputs, 1), whole, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=4, max_size=4), st.integers(1, 6))
@torch.inference_mode()
def test_rows_have_lengths_of_their_own(lengths: list[int], new: int) -> None:
    """A row in a batch gives what it gives alone, whatever its neighbours' lengths."""
    tokens = torch.randint(256, (4, 30))
    together = TINY.cache(slice(0, 4))
    TINY.run(tokens[:, :20], full(4, 0), together)
    fresh = torch.stack([tokens[row, n : n + new] for row, n in enumerate(lengths)])
    batched = TINY.run(fresh, torch.tensor(lengths), together)
    for row, length in enumerate(lengths):
        cache = TINY.cache(slice(row, row + 1))
        alone = TINY.run(tokens[row : row + 1, : length + new], full(1, 0), cache)
        assert torch.allclose(batched[row], alone[0, length:], atol=1e-9)


@torch.inference_mode()
def test_rolling_back_is_forgetting_positions() -> None:
    """Rejected tokens in the cache leave no trace once the length is taken back."""
    tokens = torch.randint(256, (1, 12))
    cache = TINY.cache(slice(0, 1))
    TINY.run(tokens[:, :5], full(1, 0), cache)
    TINY.run(torch.randint(256, (1, 6)), full(1, 5), cache)
    after = TINY.run(tokens[:, 5:], full(1, 5), cache)
    whole = TINY.run(tokens, full(1, 0), TINY.cache(slice(0, 1)))
    assert torch.allclose(after, whole[:, 5:], atol=1e-9)


@torch.inference_mode()
def test_reach_beyond_the_text_changes_nothing() -> None:
    """A wider static bound sees only masked positions."""
    tokens = torch.randint(256, (1, 9))
    narrow = TINY.run(tokens, full(1, 0), TINY.cache(slice(0, 1)), kv_len=9)
    wide = TINY.run(tokens, full(1, 0), TINY.cache(slice(0, 1)), kv_len=64)
    assert torch.allclose(narrow, wide, atol=1e-9)


@torch.inference_mode()
def test_a_shorter_window_hides_the_rest() -> None:
    """A row that heard 40 states ignores what lies behind them in its slot."""
    tokens = torch.randint(256, (2, 5))
    cache = TINY.cache(slice(0, 2))
    states = torch.tensor([40, 100])
    mixed, _ = TINY.whisper.decoder(tokens, full(2, 0), states, cache, 64, 100)
    alone, _ = TINY.whisper.decoder(
        tokens[:1], full(1, 0), states[:1], TINY.cache(slice(0, 1)), 64, 40
    )
    assert torch.allclose(mixed[:1], alone, atol=1e-9)
    other = TINY.run(tokens[:1], full(1, 0), TINY.cache(slice(0, 1)))
    assert not torch.allclose(alone, other, atol=1e-3)


@torch.inference_mode()
def test_a_moved_slot_goes_on_as_before() -> None:
    """Compaction copies everything that later passes read."""
    tokens = torch.randint(256, (4, 8))
    cache = TINY.cache(slice(0, 4))
    wanted = TINY.run(tokens, full(4, 0), TINY.cache(slice(0, 4)))
    TINY.run(tokens[:, :4], full(4, 0), cache)
    cache.move(3, 1, 4, 100)
    got = TINY.run(tokens[3:, 4:], full(1, 4), cache.rows(1, 2))
    assert torch.allclose(got, wanted[3:, 4:], atol=1e-9)


def test_the_cache_weighs_what_was_computed_beforehand() -> None:
    """So that too many slots can be refused before they are allocated."""
    cache = Cache.allocate(tiny_config(), 3, CPU, torch.float32)
    tensors = (cache.self_keys, cache.self_values, cache.cross_keys, cache.cross_values)
    wanted = sum(tensor.nbytes for tensor in tensors)
    assert Cache.bytes_for(tiny_config(), 3, torch.float32, len(cache.self_keys)) == wanted
