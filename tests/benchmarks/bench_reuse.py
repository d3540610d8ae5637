"""What a right draft is worth: live partials and finals, with the last hypothesis reused and without.

    python -m tests.benchmarks.bench_reuse [--model base] [--files N] [--drafter FILE]

Each LibriSpeech test-other recording is decoded as it would be live: a partial every half second on
the fitted window, then the final on the full one. All ways in one run, file by file in turn; the
finals must be the same. Writes docs/reuse.json.
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
    """Passes of the target (the prefill is one) and seconds, hypothesis by hypothesis."""

    passes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def facts(self) -> dict[str, float]:
        return {
            "hypotheses": len(self.passes),
            "passes_mean": statistics.mean(self.passes),
            "passes_after_prefill_mean": statistics.mean(self.passes) - 1,
            "ms_median": 1000 * statistics.median(self.seconds),
            "ms_mean": 1000 * statistics.mean(self.seconds),
        }


@dataclass(frozen=True)
class Way:
    """An engine, and whether it is told what was said before."""

    engine: Engine
    reuses: bool

    def live(self, audio: NDArray[np.float32], tallies: dict[str, Tally]) -> tuple[int, ...]:
        """Partials, then the final; its tokens."""
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
            (said,) = self.engine.transcribe([request])
            tally = tallies["final" if final else "partial"]
            tally.seconds.append(time.perf_counter() - began)
            tally.passes.append(said.rounds + 1)
            tokens = said.tokens
        return tokens


def ways(model: str, drafter: str) -> dict[str, Way]:
    """Without and with reuse; and with a trained drafter, where there is one."""
    checkpoint = load(model)
    plain = Engine(checkpoint, slots=1)
    made = {"plain": Way(plain, reuses=False), "reused": Way(plain, reuses=True)}
    if (file := choose(drafter, checkpoint)) is not None:
        drafted = Engine(checkpoint, slots=1, drafter=load_drafter(file, checkpoint))
        made["reused and drafted"] = Way(drafted, reuses=True)
    return made


def main() -> None:
    """Decode every file in every way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="base")
    parser.add_argument("--files", type=int)
    parser.add_argument("--drafter", default="auto", help="as `captiond serve` takes it")
    args = parser.parse_args()
    each = ways(args.model, args.drafter)
    for way in each.values():
        way.engine.warm_up()
    tallies = {name: {"partial": Tally(), "final": Tally()} for name in each}
    files = recordings(under="librispeech_testother_resemblyzer")[: args.files]
    different = 0
    for number, one in enumerate(files):
        order = [*each][number % len(each) :] + [*each][: number % len(each)]
        finals = {each[name].live(one.audio(), tallies[name]) for name in order}
        different += len(finals) > 1
        print(number + 1, one.name, different, flush=True)
    facts: dict[str, object] = {"files": len(files), "finals that differ": different}
    for name, told in tallies.items():
        facts[name] = {kind: tally.facts() for kind, tally in told.items()}
        for kind, tally in told.items():
            passes = statistics.mean(tally.passes) / statistics.mean(tallies["plain"][kind].passes)
            seconds = statistics.median(tally.seconds) / statistics.median(
                tallies["plain"][kind].seconds
            )
            facts[f"{kind}s, {name} to plain"] = {"passes": passes, "time": seconds}
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    RESULTS.write_text(json.dumps(results | {args.model: facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
