"""What only a CUDA device can show, in under ten minutes and without weights: prints one JSON.

    python -m tests.benchmarks.gpu_check            large-v3's shapes in float16, random weights
    python -m tests.benchmarks.gpu_check --tiny     the same code on the CPU, in seconds, as a check of itself

Captured decoding against eager, token for token, at every step of a batch table with a pretended
drafter; memory, number of graphs, and what capture gains in speed.

Random weights leave many near ties between the best two of 51,866 logits, which float16 decides by
the shape of a pass. So a pass of nine tokens may differ from one of one token now and then, which is
counted; captured and eager passes have the same shapes and must not differ at all.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from model.bench.clips import Clip
from model.bench.contenders import (
    Captiond,
    EngineUnderTest,
    ReferenceTokens,
    greedy,
    reference_tokens,
    simulated,
)
from model.bench.oracle import chance_for
from model.bench.paired_runs import (
    Measurement,
    Transcription,
    rounds_of,
    run_paired,
    token_mismatches,
)
from model.bench.report import machine
from model.checkpoints.load import Checkpoint
from model.checkpoints.random_weights import random_checkpoint, shape_config
from model.engine.batch_sizes import BUCKETS
from model.whisper.measure import timed
from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE
from model.whisper.network import Cache

ALPHA = 0.575  # share of proposals accepted, Whisper-Flash's at temperature 0
BLOCK = 8
REPEATS, WARM_UPS = 2, 1


@dataclass(frozen=True, slots=True)
class Trial:
    """batches: sizes to measure. eager: the largest of them that is also decoded eagerly.

    seconds: no further batch size is begun after this long.
    """

    checkpoint: Checkpoint
    device: str
    batches: tuple[int, ...]
    eager: int
    seconds: float


def large() -> Trial:
    """large-v3 on a CUDA device."""
    checkpoint = random_checkpoint(
        "large-v3-random", shape_config("large-v3"), device="cuda", dtype=torch.float16
    )
    return Trial(checkpoint, "cuda", BUCKETS, eager=8, seconds=420.0)


def tiny() -> Trial:
    """Two narrow layers on the CPU, with the static shapes that graphs need."""
    config = shape_config(
        "tiny",
        vocab_size=300,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=100,
        max_target_positions=64,
    )
    return Trial(random_checkpoint("tiny-random", config), "cpu", (1, 2, 4), eager=2, seconds=60.0)


def noises(count: int, longest_s: float) -> list[Clip]:
    """Seeded noise of 0.2 … 1 times `longest_s`."""
    rng = np.random.default_rng(0)
    lengths = (rng.uniform(0.2, 1.0, count) * longest_s * SAMPLE_RATE).astype(int)
    return [
        Clip(f"noise {number}", rng.uniform(-0.5, 0.5, length).astype(np.float32))
        for number, length in enumerate(lengths)
    ]


@contextmanager
def eagerly() -> Iterator[None]:
    """Engines made within decode without graphs."""
    os.environ["CAPTIOND_EAGER"] = "1"
    try:
        yield
    finally:
        del os.environ["CAPTIOND_EAGER"]


def drafted(engine_under_test: EngineUnderTest, reference: ReferenceTokens) -> Captiond:
    """The engine with a pretended drafter."""
    return simulated(engine_under_test, "en", reference, chance_for(ALPHA, BLOCK), BLOCK)


def measure(trial: Trial) -> dict[str, Any]:
    """Everything, as far as the time allows."""
    began = time.monotonic()
    most = max(trial.batches)
    clips = noises(most, trial.checkpoint.config.max_source_positions * SAMPLES_PER_STATE / 16_000)
    captured, capture_seconds = timed(
        lambda: EngineUnderTest.plain(
            trial.checkpoint, device=trial.device, slots=most, block=BLOCK, static=True
        )
    )
    with eagerly():
        eager = EngineUnderTest.plain(
            trial.checkpoint, device=trial.device, slots=trial.eager, block=BLOCK, static=True
        )
    rows, left_out = [], []
    for batch in trial.batches:
        if time.monotonic() - began > trial.seconds:
            left_out.append(batch)
            continue
        print(f"batch size {batch}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        unit = clips[:batch]
        row, reference = table_row(captured, unit)
        if batch <= trial.eager:
            row["eager"] = against_eager(captured, eager, unit, reference)
        rows.append(row)
    return {
        "machine": machine(trial.device),
        "model": trial.checkpoint.name,
        "alpha": ALPHA,
        "block": BLOCK,
        "cache_bytes": Cache.bytes_for(
            trial.checkpoint.config,
            most,
            torch.float16 if trial.device == "cuda" else torch.float32,
            trial.checkpoint.config.decoder_layers,
        ),
        "engine_and_capture_seconds": capture_seconds,
        "graphs": len(captured.engine.runner.graphs),
        "rows": rows,
        "left_out_for_time": left_out,
        "seconds": time.monotonic() - began,
    }


def table_row(
    engine_under_test: EngineUnderTest, unit: list[Clip]
) -> tuple[dict[str, Any], ReferenceTokens]:
    """K = 0 against K = 8 in one batch; and the tokens that the drafter was right about."""
    plain = greedy(engine_under_test, "en")
    # What passes of nine tokens make of the clips is what such passes will say again.
    reference = said(
        unit, drafted(engine_under_test, reference_tokens(plain, unit)).transcribe(unit)
    )
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    base, fast = raced([plain, drafted(engine_under_test, reference)], unit)
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None
    rounds = rounds_of(fast.transcriptions)
    assert rounds is not None
    row = {
        "batch": len(unit),
        "tokens": sum(len(transcription.tokens) for transcription in base.transcriptions),
        "greedy": speed(base, unit),
        "drafted": speed(fast, unit),
        "gain": float(base.seconds.sum() / fast.seconds.sum()),
        "alpha": rounds.alpha,
        "tau": rounds.tau,
        "peak_bytes": peak,
        "drafted_differ": token_mismatches(fast.transcriptions, base.transcriptions),
        "unsteady": base.unsteady + fast.unsteady,
    }
    return row, reference


def against_eager(
    captured: EngineUnderTest, eager: EngineUnderTest, unit: list[Clip], reference: ReferenceTokens
) -> dict[str, Any]:
    """The same batch with and without graphs: tokens, and how much faster captured is."""
    ways = [
        greedy(captured, "en"),
        greedy(eager, "en"),
        drafted(captured, reference),
        drafted(eager, reference),
    ]
    plain, plain_eager, fast, fast_eager = raced(ways, unit)
    return {
        "greedy_mismatches": token_mismatches(plain.transcriptions, plain_eager.transcriptions),
        "drafted_mismatches": token_mismatches(fast.transcriptions, fast_eager.transcriptions),
        "greedy_gain": float(plain_eager.seconds.sum() / plain.seconds.sum()),
        "drafted_gain": float(fast_eager.seconds.sum() / fast.seconds.sum()),
    }


def said(unit: Sequence[Clip], transcriptions: Sequence[Transcription]) -> ReferenceTokens:
    """Tokens by clip."""
    return {
        clip: transcription.tokens for clip, transcription in zip(unit, transcriptions, strict=True)
    }


def raced(ways: Sequence[Captiond], unit: list[Clip]) -> list[Measurement]:
    """Taking turns over one batch."""
    return run_paired(ways, [unit], repeats=REPEATS, warm_ups=WARM_UPS, tell=lambda _: None)


def speed(measurement: Measurement, unit: Sequence[Clip]) -> dict[str, float]:
    """Of one batch, waveform to tokens."""
    spent = float(measurement.seconds.sum())
    return {
        "seconds": spent,
        "tokens_per_s": sum(
            len(transcription.tokens) for transcription in measurement.transcriptions
        )
        / spent,
        "audio_s_per_s": sum(clip.seconds for clip in unit) / spent,
    }


def main() -> None:
    """Print the figures; exit status 1 where captured and eager tokens differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu_check")
    parser.add_argument("--tiny", action="store_true", help="on the CPU, as a check of the script")
    args = parser.parse_args()
    if not args.tiny and not torch.cuda.is_available():
        parser.error("no CUDA device can be used here; --tiny checks the script without one")
    if args.tiny:
        torch.set_num_threads(1)  # tensors this small only wait for a second thread
    figures = measure(tiny() if args.tiny else large())
    print(json.dumps(figures, indent=1))
    eager = [row["eager"] for row in figures["rows"] if "eager" in row]
    if any(row["greedy_mismatches"] or row["drafted_mismatches"] for row in eager):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
