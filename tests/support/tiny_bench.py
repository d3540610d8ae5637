"""A benchmark of the tiny model over clips of noise."""

from pathlib import Path

import numpy as np

from model.bench.benchmark import Benchmark, Plan
from model.bench.clips import Clip
from model.drafting.drafter_files import save_network
from model.drafting.parallel import Architecture, from_target
from tests.support.references import one_second
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import whisper_of

PLAN = Plan(
    language="en",
    device="cpu",
    engines=("greedy", "oracle", "again"),
    batches=(1, 4),
    repeats=1,
    warm_ups=0,
    chance=0.9,
    block=4,
    drafter=None,
    assistant=None,
)


def clips(count: int = 5) -> list[Clip]:
    """Seeded noise; every second one has a transcript."""
    return [
        Clip(
            str(n),
            np.random.default_rng(n).uniform(-1, 1, 6000 + 3000 * n).astype(np.float32),
            "some words" if n % 2 else None,
        )
        for n in range(count)
    ]


def field(tmp_path: Path, plan: Plan = PLAN) -> Benchmark:
    """The tiny model over five clips."""
    return Benchmark(CHECKPOINT, clips(), plan, tmp_path, lambda _: None, one_second)


def save_tiny_drafter(path: Path) -> Path:
    """An untrained drafter of the tiny model, on disk."""
    network = from_target(whisper_of(CHECKPOINT), Architecture(1, 4, (0, 1)), (1,))
    save_network(path, network, target=CHECKPOINT.fingerprint, acceptance=[0.9] * 4)
    return path
