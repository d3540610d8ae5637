"""What a right draft is worth: live partials and finals, with the last hypothesis reused and without.

    python -m tests.bench_reuse [--model base] [--files N]

Each LibriSpeech test-other recording is decoded as it would be live: a partial every half second on
the fitted window, then the final on the full one. Both ways in one run, file by file in turn; the
texts must be the same. Writes docs/reuse.json.
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from model.engine import Engine
from model.load import load
from model.mel import SAMPLE_RATE
from model.requests import Request
from tests.audio import recordings

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "reuse.json"
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


def main() -> None:
    """Decode every file both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="base")
    parser.add_argument("--files", type=int)
    args = parser.parse_args()
    engine = Engine(load(args.model), slots=1)
    engine.warm_up()
    tallies = {(reused, kind): Tally() for reused in (False, True) for kind in ("partial", "final")}
    files = recordings(under="librispeech_testother_resemblyzer")[: args.files]
    different = 0
    for number, one in enumerate(files):
        audio, finals = one.audio(), {}
        for reused in (False, True) if number % 2 else (True, False):
            previous: tuple[int, ...] = ()
            stops = [*range(STEP, len(audio), STEP), len(audio)]
            for stop in stops:
                final = stop == len(audio)
                request = Request(
                    audio[:stop],
                    language="en",
                    fitted_window=not final,
                    previous=previous if reused else (),
                )
                began = time.perf_counter()
                (said,) = engine.transcribe([request])
                tally = tallies[reused, "final" if final else "partial"]
                tally.seconds.append(time.perf_counter() - began)
                tally.passes.append(said.rounds + 1)
                previous = said.tokens
            finals[reused] = previous
        different += finals[True] != finals[False]
        print(number + 1, one.name, different, flush=True)
    facts: dict[str, object] = {
        f"{kind} {'with' if reused else 'without'} reuse": tally.facts()
        for (reused, kind), tally in tallies.items()
    }
    for kind in ("partial", "final"):
        with_reuse, without = (statistics.mean(tallies[r, kind].passes) for r in (True, False))
        facts[f"{kind} passes, with to without"] = with_reuse / without
    facts["files"], facts["finals that differ"] = len(files), different
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    RESULTS.write_text(json.dumps(results | {args.model: facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
