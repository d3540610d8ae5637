import numpy as np
import pytest
import torch

from model.checkpoints.random_weights import random_checkpoint, shape_config
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.whisper.network import Whisper
from tests.support.tiny import SMALL


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("tiny", 37_760_640),
        ("base", 72_593_920),
        ("small", 241_734_912),
        ("medium", 763_857_920),
        ("large-v2", 1_543_304_960),
        ("large-v3", 1_543_490_560),
        ("large-v3-turbo", 808_878_080),
    ],
)
def test_sizes_are_the_published_ones(name: str, published: int) -> None:
    """Parameters as transformers counts them: the head is the embedding, keys have no bias."""
    config = shape_config(name)
    with torch.device("meta"):
        shapes = Whisper(config).state_dict()
    layers = config.encoder_layers + 2 * config.decoder_layers
    held = sum(t.numel() for key, t in shapes.items() if key != "decoder.head.weight")
    assert held - layers * config.d_model == published


def test_transcripts_vary_and_are_the_same_every_time() -> None:
    """A model that repeats one token would prove nothing about decoding."""
    config = shape_config("tiny", **SMALL)
    rng = np.random.default_rng(0)
    requests = [
        Request(rng.uniform(-1, 1, 9000 + 4000 * n).astype(np.float32), language="en")
        for n in range(4)
    ]

    def tokens() -> list[tuple[int, ...]]:
        engine = Engine(random_checkpoint("random", config), slots=4)
        return [hypothesis.tokens for hypothesis in transcribe(engine, requests)]

    first = tokens()
    assert first == tokens()
    assert len(set(first)) == 4
    assert all(len(set(one)) > len(one) / 2 for one in first)


def test_half_precision_is_drawn_directly() -> None:
    weights = random_checkpoint("half", shape_config("tiny", **SMALL), dtype=torch.float16).weights
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
