from collections.abc import Iterator

import pytest
import torch

from model.checkpoints.load import Checkpoint
from model.checkpoints.reference import as_transformers
from tests.support.tiny import changed, tiny_checkpoint


def test_the_token_rules_come_along() -> None:
    checkpoint = tiny_checkpoint()
    generation = as_transformers(checkpoint).generation_config
    assert generation.eos_token_id == checkpoint.tokens.eot
    assert generation.suppress_tokens == list(checkpoint.tokens.suppressed)
    assert generation.begin_suppress_tokens == list(checkpoint.tokens.suppressed_first)
    assert generation.lang_to_id == {f"<|{c}|>": n for c, n in checkpoint.tokens.languages.items()}


def test_no_tensor_is_left_at_its_random_start() -> None:
    """Twice the same model, whatever the seed: every parameter comes from the checkpoint."""

    def parameters(checkpoint: Checkpoint, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
        torch.manual_seed(seed)
        return iter(as_transformers(checkpoint).state_dict().items())

    checkpoint = tiny_checkpoint()
    pairs = zip(parameters(checkpoint, 1), parameters(checkpoint, 2), strict=True)
    assert [name for (name, a), (_, b) in pairs if not torch.equal(a, b)] == []


def test_keys_with_a_bias_are_not_whisper() -> None:
    """Transformers has no place for one: it may not vanish."""
    checkpoint = tiny_checkpoint()
    weights = changed(checkpoint.weights, "decoder.layers.0.cross.kv.bias", lambda bias: bias + 1.0)
    biased = Checkpoint(
        "biased", "tests", checkpoint.config, checkpoint.tokens, weights, checkpoint.heads
    )
    with pytest.raises(AssertionError, match="keys have no bias"):
        as_transformers(biased)
