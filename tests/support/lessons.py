"""Audio to learn from, made of noise, and what the tiny target makes of it: for tests of training."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from model.training.data.cache import CacheMetadata, create, shard_path, write_shard
from model.training.data.corpus import Passage, Recording, listing
from model.training.data.distil import decode_passages
from model.training.data.teacher import Teacher
from model.training.recipe import Recipe
from tests.support.tiny import CHECKPOINT

needs_hibari = pytest.mark.skipif(
    find_spec("hibari") is None, reason="hibari-tts is not installed (extra training)"
)
CPU = torch.device("cpu")
AUX_LAYERS = (0, 1)
RECIPE = Recipe(
    layers=(0, 1),
    aux_layers=AUX_LAYERS,
    block=4,
    steps=6,
    batch=4,
    anchors=4,
    coverage=0.9,
    validate_every=2,
    held_out=0.3,
    validation=3,
)


def noise(seed: int, samples: int = 8000) -> NDArray[np.float32]:
    """float32 [samples] that differ by seed."""
    return np.random.default_rng(seed).uniform(-0.5, 0.5, samples).astype(np.float32)


def record(path: Path, seed: int, samples: int = 8000, rate: int = 16_000) -> Path:
    """A file of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, noise(seed, samples), rate)
    return path


def passage(path: Path, seed: int, speaker: str = "", samples: int = 8000) -> Passage:
    """One recording of noise that lies at `path`."""
    record(path, seed, samples)
    who = speaker or f"speaker {seed % 5}"
    return Passage(
        (Recording(path.name, samples / 16_000, who, "CC0", f"source {seed % 2}", path),)
    )


def passages(folder: Path, count: int) -> list[Passage]:
    """Half a second to a second and a half each, of five speakers from two sources."""
    return [
        passage(folder / f"{number}.wav", number, samples=8000 + 700 * (number % 24))
        for number in range(count)
    ]


@cache
def teacher() -> Teacher:
    """The tiny target, for both of its blocks."""
    return Teacher(CHECKPOINT, device=CPU, rows=4, aux_layers=AUX_LAYERS)


def fill(directory: Path, taught: list[Passage]) -> Path:
    """A cache of one shard, as `distil` makes it."""
    facts = CacheMetadata(
        CHECKPOINT.fingerprint, "tiny", AUX_LAYERS, "en", listing(taught), len(taught)
    )
    create(directory, facts)
    write_shard(shard_path(directory, 0), *decode_passages(teacher(), taught, "en"))
    return directory
