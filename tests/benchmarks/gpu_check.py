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
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import pytest
import torch

from model.bench.clips import Clip
from model.bench.contenders import Captiond, EngineUnderTest, greedy, reference_tokens, simulated
from model.bench.oracle import chance_for
from model.bench.paired_runs import rounds_of, run_paired, token_mismatches
from model.bench.report import machine
from model.checkpoints.load import Checkpoint
from model.checkpoints.random_weights import random_checkpoint, shape_config
from model.engine.batch_sizes import BUCKETS
from model.whisper.measure import timed
from tests.support.tiny import SMALL
from tests.support.tiny_bench import clips

ALPHA = 0.575  # share of proposals accepted, Whisper-Flash's at temperature 0
BLOCK = 8


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

    def engine(self, slots: int) -> EngineUnderTest:
        """With the static shapes that graphs need."""
        return EngineUnderTest.plain(
            self.checkpoint, device=self.device, slots=slots, block=BLOCK, static=True
        )


def large() -> Trial:
    """large-v3 on a CUDA device."""
    config = shape_config("large-v3")
    checkpoint = random_checkpoint("large-v3-random", config, device="cuda", dtype=torch.float16)
    return Trial(checkpoint, "cuda", BUCKETS, eager=8, seconds=420.0)


def tiny() -> Trial:
    """Two narrow layers on the CPU."""
    checkpoint = random_checkpoint("tiny-random", shape_config("tiny", **SMALL))
    return Trial(checkpoint, "cpu", (1, 2, 4), eager=2, seconds=60.0)


def measure(trial: Trial) -> dict[str, Any]:
    """Everything, as far as the time allows."""
    began = time.monotonic()
    most = max(trial.batches)
    captured, capture_seconds = timed(lambda: trial.engine(most))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CAPTIOND_EAGER", "1")
        eager = trial.engine(trial.eager)
    rows, left_out = [], []
    for batch in trial.batches:
        if time.monotonic() - began > trial.seconds:
            left_out.append(batch)
            continue
        print(f"batch size {batch}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        rows.append(table_row(captured, eager if batch <= trial.eager else None, clips(batch)))
    return {
        "machine": machine(trial.device),
        "model": trial.checkpoint.name,
        "alpha": ALPHA,
        "block": BLOCK,
        "engine_and_capture_seconds": capture_seconds,
        "graphs": len(captured.engine.runner.graphs),
        "rows": rows,
        "left_out_for_time": left_out,
        "seconds": time.monotonic() - began,
    }


def table_row(
    captured: EngineUnderTest, eager: EngineUnderTest | None, unit: list[Clip]
) -> dict[str, Any]:
    """K = 0 against K = 8 in one batch, with graphs and without."""
    chance = chance_for(ALPHA, BLOCK)
    plain = greedy(captured, "en")
    guessed = simulated(captured, "en", reference_tokens(plain, unit), chance, BLOCK)
    # What passes of nine tokens make of the clips is what such passes will say again.
    reference = reference_tokens(guessed, unit)
    ways: list[Captiond] = []
    for engine in filter(None, (captured, eager)):
        ways += [greedy(engine, "en"), simulated(engine, "en", reference, chance, BLOCK)]
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    raced = run_paired(ways, [unit], repeats=2, warm_ups=1, tell=lambda _: None)
    base, fast = raced[:2]
    rounds = rounds_of(fast.transcriptions)
    assert rounds is not None
    seconds = [float(one.seconds.sum()) for one in raced]
    row = {
        "batch": len(unit),
        "audio_s": sum(clip.seconds for clip in unit),
        "tokens": sum(len(transcription.tokens) for transcription in base.transcriptions),
        "greedy_seconds": seconds[0],
        "drafted_seconds": seconds[1],
        "gain": seconds[0] / seconds[1],
        **asdict(rounds),
        "peak_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None,
        "drafted_differ": token_mismatches(fast.transcriptions, base.transcriptions),
        "unsteady": base.unsteady + fast.unsteady,
    }
    for name, one, other in zip(("greedy", "drafted"), raced, raced[2:], strict=False):
        mismatches = token_mismatches(one.transcriptions, other.transcriptions)
        gain = float(other.seconds.sum() / one.seconds.sum())
        row.setdefault("eager", {})[name] = {"mismatches": mismatches, "gain": gain}
    return row


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
    eager = [way for row in figures["rows"] for way in row.get("eager", {}).values()]
    sys.exit(any(way["mismatches"] for way in eager))


if __name__ == "__main__":
    main()
