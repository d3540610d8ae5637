"""The papers' experiments in shape: what makes a drafter good, one change at a time.

    python -m tests.bench_drafters --cache REAL SYNTHETIC … --work FOLDER [--steps 400] [--only NAME …]

Every variant is trained with the same seed, steps and data, and measured by the walk of greedy
decoding on recordings that no training heard: LibriSpeech test-other, and a spread of the other
English test recordings of up to 30 s. The first cache holds the real speech, the others the synthetic. What is
finished is not done again; results go into docs/drafters.json and .md as they come.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from model.engine import BLOCK
from model.load import Checkpoint, load
from model.trained import load_network
from model.training import cache
from model.training.corpus import Passage, Recording, find
from model.training.distil import distil
from model.training.evaluate import judge
from model.training.recipe import Recipe, last_layers, speech_taps, taps_for
from model.training.score import Score
from model.training.shelf import Shelf
from model.training.trainer import Trainer
from tests.audio import MANIFEST

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "drafters.json"
HEAD = """# What makes a drafter good

One change at a time, {steps} steps each of 4 passages with 16 anchors, the same seed; by
`python -m tests.bench_drafters`. τ: tokens a round after the prefill, on speakers held out from training, on
LibriSpeech test-other, and on a spread of other English test recordings. Minutes are of one core.

| variant | hours | τ held out | τ test-other | α test-other | τ others | accepted by position (test-other) | MB | minutes |
|---|---|---|---|---|---|---|---|---|"""
HARD = "librispeech_testother"
OTHERS = 7  # of the other recordings one in so many
CPU = torch.device("cpu")


def variants(
    checkpoint: Checkpoint, caches: list[Path], steps: int
) -> dict[str, tuple[Recipe, list[Path]]]:
    """By name: how to train each, and on what."""
    config = checkpoint.config
    blocks = int(config.decoder_layers)

    def parallel(layers: tuple[int, ...], *, soft: bool = False) -> Recipe:
        return Recipe(
            layers=layers,
            taps=taps_for(config, layers, soft=soft),
            steps=steps,
            validate_every=steps,
            soft=0.5 if soft else 0.0,
        )

    plain = parallel(last_layers(config))
    speech = replace(
        parallel((blocks - 1,)), taps=speech_taps(config, blocks - 1, soft=False), kind="speech"
    )
    recipes = {
        "plain": plain,
        "without history": replace(plain, history=False),
        "without audio": replace(plain, audio=False),
        "absolute positions": replace(plain, rope=False),
        "Speech-Draft": speech,
        "one layer": parallel(last_layers(config, 1)),
        "two layers": parallel(last_layers(config, 2)),
        "five layers": parallel(last_layers(config, 5)),
        "from the first blocks": parallel(tuple(range(min(3, blocks)))),
        "soft labels": parallel(last_layers(config), soft=True),
        "small vocabulary": replace(plain, coverage=0.95),
        "whole vocabulary": replace(plain, coverage=1.0),
    }
    chosen = {name: (recipe, caches) for name, recipe in recipes.items()}
    if len(caches) > 1:
        chosen["real speech alone"] = plain, caches[:1]
        chosen["synthetic speech alone"] = plain, caches[1:]
    return chosen


def heard_in_tests(checkpoint: Checkpoint, folder: Path) -> dict[str, Path]:
    """Caches of the recordings to measure on, each recording alone."""
    found = find([MANIFEST], use="test")
    sets: dict[str, list[Recording]] = {"test-other": [], "others": []}
    for recording in found:
        sets["test-other" if HARD in recording.origin else "others"].append(recording)
    sets["others"] = sets["others"][::OTHERS]
    for name, recordings in sets.items():
        distil(checkpoint, [Passage((one,)) for one in recordings], folder / name, device=CPU)
    return {name: folder / name for name in sets}


def facts_of(score: Score) -> dict[str, object]:
    """Figures of one walk."""
    return {
        "rounds": score.rounds,
        "tokens": score.tokens,
        "tau": round(score.tau, 3),
        "alpha": round(score.alpha, 4),
        "acceptance": [round(share, 3) for share in score.acceptance(BLOCK)],
    }


def measure(checkpoint: Checkpoint, file: Path, heard: dict[str, Path]) -> dict[str, object]:
    """A trained drafter on every set."""
    network, _ = load_network(file, checkpoint)
    found: dict[str, object] = {}
    for name, directory in heard.items():
        trajectories = map(cache.read, cache.entries(directory))
        taps = cache.read_facts(directory).taps
        found[name] = facts_of(judge(checkpoint, network, trajectories, kept=taps, device=CPU))
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure what is not yet in the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="base")
    parser.add_argument("--cache", nargs="+", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="variants, by name (default: all)")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    checkpoint = load(args.model)
    heard = heard_in_tests(checkpoint, args.work / "heard")
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name, (recipe, caches) in variants(checkpoint, args.cache, args.steps).items():
        known = results.get(name, {}).get("recipe")
        if (args.only and name not in args.only) or known == json.loads(json.dumps(asdict(recipe))):
            continue
        folder = args.work / name.replace(" ", "-")
        began = time.monotonic()
        trainer = Trainer(checkpoint, caches, recipe, folder)
        score = trainer.run()
        seconds = time.monotonic() - began
        best = folder / "best.safetensors"
        results[name] = {
            "recipe": asdict(recipe),
            "hours": hours(trainer.shelf),
            "seconds": round(seconds),
            "held out": facts_of(score),
            **measure(checkpoint, best, heard),
            "megabytes": round(best.stat().st_size / 1e6, 1),
        }
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        RESULTS.with_suffix(".md").write_text(page(results), encoding="utf-8")
        print(name, json.dumps(results[name]["test-other"]), flush=True)


def page(results: dict[str, dict[str, Any]]) -> str:
    """The results as a table."""
    steps = {facts["recipe"]["steps"] for facts in results.values()}
    lines = [HEAD.format(steps=" or ".join(map(str, sorted(steps))))]
    for name, facts in results.items():
        hard = facts["test-other"]
        shares = " ".join(f"{share:.2f}".lstrip("0") for share in hard["acceptance"])
        lines.append(
            f"| {name} | {facts['hours']} | {facts['held out']['tau']:.2f} | {hard['tau']:.2f} | "
            f"{hard['alpha']:.1%} | {facts['others']['tau']:.2f} | {shares} | {facts['megabytes']} | "
            f"{facts['seconds'] / 60:.1f} |"
        )
    return "\n".join(lines) + "\n"


def hours(shelf: Shelf) -> float:
    """Of audio that is trained on."""
    return round(sum(entry.seconds for entry in shelf.training) / 3600, 2)


if __name__ == "__main__":
    main()
