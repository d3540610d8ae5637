"""Reuse of the previous hypothesis as a draft: passes and times of live partials and finals.

    python -m tests.benchmarks.bench_reuse [--model base] [--files N] [--drafter FILE]

Each LibriSpeech test-other recording is decoded as if live: a partial every half second on the fitted window,
then the final on the full one. All variants take turns in one run, file by file; their finals must be
equal. Writes docs/reuse.json.
"""

import argparse
import json
import statistics
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.checkpoints.load import load
from model.drafting.drafter_files import choose, load_drafter
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.whisper.measure import timed
from model.whisper.mel import SAMPLE_RATE
from tests.support.audio import recordings

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "reuse.json"
STEP = SAMPLE_RATE // 2


# Passes of the target (the prefill is one) and seconds, by hypothesis.
Tally = list[tuple[int, float]]


def figures_of(tally: Tally) -> dict[str, float]:
    passes, seconds = zip(*tally, strict=True)
    return {
        "hypotheses": len(tally),
        "passes_mean": statistics.mean(passes),
        "passes_after_prefill_mean": statistics.mean(passes) - 1,
        "ms_median": 1000 * statistics.median(seconds),
        "ms_mean": 1000 * statistics.mean(seconds),
    }


Variant = tuple[Engine, bool]  # and whether requests carry the previous hypothesis


def live(
    variant: Variant, audio: NDArray[np.float32], tallies: dict[str, Tally]
) -> tuple[int, ...]:
    """Decode the partials and the final; returns the final's tokens."""
    engine, reuses = variant
    tokens: tuple[int, ...] = ()
    for stop in [*range(STEP, len(audio), STEP), len(audio)]:
        final = stop == len(audio)
        draft = tokens if reuses else ()
        request = Request(audio[:stop], language="en", fitted_window=not final, draft_tokens=draft)
        (hypothesis,), seconds = timed(lambda: transcribe(engine, [request]))  # noqa: B023
        tallies["final" if final else "partial"].append((hypothesis.rounds + 1, seconds))
        tokens = hypothesis.tokens
    return tokens


def variants(model: str, drafter: str) -> dict[str, Variant]:
    """Without and with reuse, and with a trained drafter, where there is one."""
    checkpoint = load(model)
    plain = Engine(checkpoint, slots=1)
    made = {"plain": (plain, False), "reused": (plain, True)}
    if (file := choose(drafter, checkpoint)) is not None:
        drafted = Engine(checkpoint, slots=1, drafter=load_drafter(file, checkpoint))
        made["reused and drafted"] = (drafted, True)
    return made


def main() -> None:
    """Decode every file with every variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="base")
    parser.add_argument("--files", type=int)
    parser.add_argument("--drafter", default="auto", help="as `captiond serve` takes it")
    args = parser.parse_args()
    each = variants(args.model, args.drafter)
    for engine, _ in each.values():
        engine.warm_up()
    tallies: dict[str, dict[str, Tally]] = {name: {"partial": [], "final": []} for name in each}
    files = recordings(under="librispeech_testother_resemblyzer")[: args.files]
    different = 0
    for number, one in enumerate(files):
        order = [*each][number % len(each) :] + [*each][: number % len(each)]
        finals = {live(each[name], one.audio(), tallies[name]) for name in order}
        different += len(finals) > 1
        print(number + 1, one.name, different, flush=True)
    figures: dict[str, object] = {"files": len(files), "finals that differ": different}
    found = {
        name: {kind: figures_of(tally) for kind, tally in by_kind.items()}
        for name, by_kind in tallies.items()
    }
    for name, by_kind in found.items():
        figures[name] = by_kind
        for kind, mine in by_kind.items():
            figures[f"{kind}s, {name} to plain"] = {
                part: mine[key] / found["plain"][kind][key]
                for part, key in (("passes", "passes_mean"), ("time", "ms_median"))
            }
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    RESULTS.write_text(json.dumps(results | {args.model: figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
