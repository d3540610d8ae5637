from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import WhisperConfig

from model.checkpoints.load import Checkpoint
from model.checkpoints.reference import as_transformers
from model.whisper.network import Cache, Whisper
from model.whisper.quantised import missing_instructions
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
    whisper = Whisper.from_weights(config, weights, CPU, torch.float32)
    cache = Cache.allocate(config, 2, CPU, torch.float32)
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

    In float64, so that a difference means another computation and not another rounding; in int8, where
    what steps round must not turn on the company, the last bit must be the same.
    """

    def __init__(self, *, int8: bool) -> None:
        self.config, self.int8 = tiny_config(), int8
        dtype = torch.float32 if int8 else torch.float64
        weights = random_weights(self.config)
        self.whisper = Whisper.from_weights(self.config, weights, CPU, dtype, int8=int8)
        generator = torch.Generator().manual_seed(5)
        self.acoustic = torch.randn(4, 100, 32, generator=generator, dtype=dtype)

    def same(self, one: Tensor, other: Tensor) -> bool:
        return torch.equal(one, other) if self.int8 else torch.allclose(one, other, atol=1e-9)

    def cache(self, rows: slice) -> Cache:
        dtype = self.whisper.cache_dtype
        cache = Cache.allocate(self.config, rows.stop - rows.start, CPU, dtype)
        # What a former utterance left behind must not matter.
        cache.self_keys.fill_(7.0)
        cache.self_values.fill_(7.0)
        self.whisper.decoder.write_cross(self.acoustic[rows], cache)
        return cache

    def run(self, tokens: Tensor, lengths: Tensor, cache: Cache, kv_len: int = 64) -> Tensor:
        states = full(len(tokens), 100)
        hidden, _ = self.whisper.decoder(tokens, lengths, states, cache, kv_len, 100)
        logits: Tensor = self.whisper.decoder.logits(hidden)
        return logits


@cache
def tiny_of(*, int8: bool) -> Tiny:
    return Tiny(int8=int8)


TINY = tiny_of(int8=False)
without_int8 = pytest.mark.skipif(bool(missing_instructions()), reason="this CPU has no int8")
both_targets = pytest.mark.parametrize(
    "int8", [False, pytest.param(True, marks=without_int8)], ids=["float64", "int8"]
)


@both_targets
@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 10_000))
@torch.inference_mode()
def test_any_split_equals_one_pass(int8: bool, pieces: list[int], seed: int) -> None:
    """K cached and m at once = one pass of k + m, for every way to cut it."""
    tiny = tiny_of(int8=int8)
    tokens = torch.randint(256, (1, sum(pieces)), generator=torch.Generator().manual_seed(seed))
    whole = tiny.run(tokens, full(1, 0), tiny.cache(slice(0, 1)))
    cache, done, outputs = tiny.cache(slice(0, 1)), 0, []
    for piece in pieces:
        outputs.append(tiny.run(tokens[:, done : done + piece], full(1, done), cache))
        done += piece
    assert tiny.same(torch.cat(outputs, 1), whole)


@both_targets
@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(0, 20), min_size=4, max_size=4), new=st.integers(1, 6))
@torch.inference_mode()
def test_rows_have_lengths_of_their_own(int8: bool, lengths: list[int], new: int) -> None:
    tiny = tiny_of(int8=int8)
    tokens = torch.randint(256, (4, 30))
    together = tiny.cache(slice(0, 4))
    tiny.run(tokens[:, :20], full(4, 0), together)
    fresh = torch.stack([tokens[row, n : n + new] for row, n in enumerate(lengths)])
    batched = tiny.run(fresh, torch.tensor(lengths), together)
    for row, length in enumerate(lengths):
        cache = tiny.cache(slice(row, row + 1))
        alone = tiny.run(tokens[row : row + 1, : length + new], full(1, 0), cache)
        assert tiny.same(batched[row], alone[0, length:])


@both_targets
@torch.inference_mode()
def test_rows_of_the_encoder_equal_those_alone(int8: bool) -> None:
    tiny = tiny_of(int8=int8)
    mel = torch.randn(4, 80, 200, dtype=tiny.acoustic.dtype)
    together = tiny.whisper.encoder(mel)
    assert all(tiny.same(tiny.whisper.encoder(mel[i : i + 1])[0], together[i]) for i in range(4))


@torch.inference_mode()
def test_rolling_back_is_forgetting_positions() -> None:
    tokens = torch.randint(256, (1, 12))
    cache = TINY.cache(slice(0, 1))
    TINY.run(tokens[:, :5], full(1, 0), cache)
    TINY.run(torch.randint(256, (1, 6)), full(1, 5), cache)
    after = TINY.run(tokens[:, 5:], full(1, 5), cache)
    whole = TINY.run(tokens, full(1, 0), TINY.cache(slice(0, 1)))
    assert torch.allclose(after, whole[:, 5:], atol=1e-9)


@torch.inference_mode()
def test_reach_beyond_the_text_changes_nothing() -> None:
    tokens = torch.randint(256, (1, 9))
    narrow = TINY.run(tokens, full(1, 0), TINY.cache(slice(0, 1)), kv_len=9)
    wide = TINY.run(tokens, full(1, 0), TINY.cache(slice(0, 1)), kv_len=64)
    assert torch.allclose(narrow, wide, atol=1e-9)


@torch.inference_mode()
def test_a_shorter_window_hides_the_rest() -> None:
    tokens = torch.randint(256, (2, 5))
    cache = TINY.cache(slice(0, 2))
    states = torch.tensor([40, 100])
    decoder, first = TINY.whisper.decoder, tokens[:1]
    mixed, _ = decoder(tokens, full(2, 0), states, cache, 64, 100)
    alone, _ = decoder(first, full(1, 0), states[:1], TINY.cache(slice(0, 1)), 64, 40)
    assert torch.allclose(mixed[:1], alone, atol=1e-9)
    other = TINY.run(first, full(1, 0), TINY.cache(slice(0, 1)))
    assert not torch.allclose(decoder.logits(alone), other, atol=1e-3)


@torch.inference_mode()
def test_a_moved_slot_goes_on_as_before() -> None:
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
