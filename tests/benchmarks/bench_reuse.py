"""Reuse of the previous hypothesis as a draft: passes and times of live partials and finals.

    python -m tests.benchmarks.bench_reuse [--model base] [--files N] [--drafter FILE]

Each LibriSpeech test-other recording is decoded as if live: a partial every half second on the fitted window,
then the final on the full one. All variants take turns in one run, file by file; their finals must be
equal. Writes docs/reuse.json.
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.checkpoints.load import load
from model.drafting.drafter_files import choose, load_drafter
from model.engine.engine import Engine
from model.engine.requests import Request
from model.whisper.mel import SAMPLE_RATE
from tests.support.audio import recordings

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "reuse.json"
STEP = SAMPLE_RATE // 2


@dataclass
class Tally:
    """Passes of the target (the prefill is one) and seconds of each hypothesis."""

    passes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        return {
            "hypotheses": len(self.passes),
            "passes_mean": statistics.mean(self.passes),
            "passes_after_prefill_mean": statistics.mean(self.passes) - 1,
            "ms_median": 1000 * statistics.median(self.seconds),
            "ms_mean": 1000 * statistics.mean(self.seconds),
        }


@dataclass(frozen=True)
class Variant:
    """An engine, and whether requests carry the previous hypothesis."""

    engine: Engine
    reuses: bool

    def live(self, audio: NDArray[np.float32], tallies: dict[str, Tally]) -> tuple[int, ...]:
        """Decode the partials and the final; returns the final's tokens."""
        tokens: tuple[int, ...] = ()
        for stop in [*range(STEP, len(audio), STEP), len(audio)]:
            final = stop == len(audio)
            request = Request(
                audio[:stop],
                language="en",
                fitted_window=not final,
                draft_tokens=tokens if self.reuses else (),
            )
            began = time.perf_counter()
            (hypothesis,) = self.engine.transcribe([request])
            tally = tallies["final" if final else "partial"]
            tally.seconds.append(time.perf_counter() - began)
            tally.passes.append(hypothesis.rounds + 1)
            tokens = hypothesis.tokens
        return tokens


def variants(model: str, drafter: str) -> dict[str, Variant]:
    """Without and with reuse, and with a trained drafter, where there is one."""
    checkpoint = load(model)
    plain = Engine(checkpoint, slots=1)
    made = {"plain": Variant(plain, reuses=False), "reused": Variant(plain, reuses=True)}
    if (file := choose(drafter, checkpoint)) is not None:
        drafted = Engine(checkpoint, slots=1, drafter=load_drafter(file, checkpoint))
        made["reused and drafted"] = Variant(drafted, reuses=True)
    return made


def main() -> None:
    """Decode every file with every variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="base")
    parser.add_argument("--files", type=int)
    parser.add_argument("--drafter", default="auto", help="as `captiond serve` takes it")
    args = parser.parse_args()
    each = variants(args.model, args.drafter)
    for variant in each.values():
        variant.engine.warm_up()
    tallies = {name: {"partial": Tally(), "final": Tally()} for name in each}
    files = recordings(under="librispeech_testother_resemblyzer")[: args.files]
    different = 0
    for number, one in enumerate(files):
        order = [*each][number % len(each) :] + [*each][: number % len(each)]
        finals = {each[name].live(one.audio(), tallies[name]) for name in order}
        different += len(finals) > 1
        print(number + 1, one.name, different, flush=True)
    figures: dict[str, object] = {"files": len(files), "finals that differ": different}
    for name, by_kind in tallies.items():
        figures[name] = {kind: tally.figures() for kind, tally in by_kind.items()}
        for kind, tally in by_kind.items():
            passes = statistics.mean(tally.passes) / statistics.mean(tallies["plain"][kind].passes)
            seconds = statistics.median(tally.seconds) / statistics.median(
                tallies["plain"][kind].seconds
            )
            figures[f"{kind}s, {name} to plain"] = {"passes": passes, "time": seconds}
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    RESULTS.write_text(json.dumps(results | {args.model: figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
