"""Ablations of drafters, after the papers' experiments: one change at a time.

    python -m tests.benchmarks.bench_drafters --cache REAL SYNTHETIC … --work FOLDER [--steps 400] [--only NAME …]

Every variant is trained with the same seed, steps and data, and evaluated by the walk of greedy decoding on
recordings outside the training data: of the first cache's held-out speakers, LibriSpeech test-other, and
a selection of the other English test recordings of up to 30 s. The first cache has real speech, the others
synthetic; FOLDER is for one model. Finished variants are skipped. Results go
to docs/drafters.json as they come, by model; the tables of docs/drafters.md are made of them.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from model.checkpoints.load import Checkpoint, load
from model.drafting.drafter_files import load_drafter, stored_fields
from model.engine.engine import BLOCK
from model.training.data import cache
from model.training.data.cache import Entry
from model.training.data.corpus import Passage, Recording, find
from model.training.data.distil import distil
from model.training.data.files import replace_text
from model.training.data.trajectories import TrajectorySplits
from model.training.evaluate import evaluate
from model.training.recipe import Recipe, aux_layers_for, last_layers, speech_aux_layers
from model.training.score import Score
from model.training.trainer import Trainer
from tests.support.audio import MANIFEST

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "drafters.json"
TABLE = """
## {model}

{steps} steps each.

| variant | hours | τ held out | τ test-other | α test-other | τ others | accepted by position (test-other) | MB | minutes |
|---|---|---|---|---|---|---|---|---|"""
HARD = "librispeech_testother"
OTHERS = 7  # one of so many other recordings
HELD_OUT = 64  # passages
CPU = torch.device("cpu")

Figures = dict[str, Any]  # of a variant
Results = dict[str, dict[str, Figures]]  # by model, then by variant
# Trajectories; the blocks of their features.
EvaluationSet = tuple[Sequence[Entry], tuple[int, ...]]


def variants(
    checkpoint: Checkpoint, caches: list[Path], steps: int
) -> dict[str, tuple[Recipe, list[Path]]]:
    """Recipe and caches of each variant, by name."""
    config = checkpoint.config
    blocks = int(config.decoder_layers)

    def parallel(layers: tuple[int, ...], *, soft: bool = False) -> Recipe:
        return Recipe(
            layers=layers,
            aux_layers=aux_layers_for(config, layers, soft=soft),
            steps=steps,
            validate_every=steps,
            soft=0.5 if soft else 0.0,
        )

    plain = parallel(last_layers(config))
    speech = replace(
        parallel((blocks - 1,)),
        aux_layers=speech_aux_layers(config, blocks - 1, soft=False),
        kind="speech",
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


def evaluation_sets(checkpoint: Checkpoint, folder: Path) -> dict[str, EvaluationSet]:
    """The test recordings, each a passage of its own."""
    found = find([MANIFEST], use="test")
    sets: dict[str, list[Recording]] = {"test-other": [], "others": []}
    for recording in found:
        sets["test-other" if HARD in recording.origin else "others"].append(recording)
    sets["others"] = sets["others"][::OTHERS]
    for name, recordings in sets.items():
        distil(checkpoint, [Passage((one,)) for one in recordings], folder / name, device=CPU)
    return {
        name: (list(cache.entries(folder / name)), cache.read_metadata(folder / name).aux_layers)
        for name in sets
    }


def held_out(real: Path, recipe: Recipe) -> EvaluationSet:
    """A selection of the trajectories of that cache's held-out speakers."""
    splits = TrajectorySplits([real], replace(recipe, validation=HELD_OUT))
    return splits.validation, splits.metadata.aux_layers


def figures_of(score: Score) -> Figures:
    """A score as plain JSON."""
    return {
        "rounds": score.rounds,
        "tokens": score.tokens,
        "tau": round(score.tau, 3),
        "alpha": round(score.alpha, 4),
        "acceptance": [round(share, 3) for share in score.acceptance(BLOCK)],
    }


def measure(checkpoint: Checkpoint, file: Path, sets: dict[str, EvaluationSet]) -> Figures:
    """A trained network's scores on every set."""
    network = load_drafter(file, checkpoint).network
    found = {}
    for name, (entries, aux_layers) in sets.items():
        taught = map(cache.read, entries)
        found[name] = figures_of(evaluate(checkpoint, network, taught, kept=aux_layers, device=CPU))
    return found


def examine(
    checkpoint: Checkpoint,
    recipe: Recipe,
    caches: Sequence[Path],
    folder: Path,
    sets: dict[str, EvaluationSet],
) -> Figures:
    """Train a variant, or resume it, and evaluate it."""
    whole = not (folder / "checkpoint.pt").exists()
    trainer = Trainer(checkpoint, caches, recipe, folder)
    began = time.monotonic()
    trainer.run()
    seconds = round(time.monotonic() - began)
    best = folder / "best.safetensors"
    return {
        "recipe": stored_fields(recipe),
        "hours": hours(trainer.splits),
        # The seconds of a stopped run are not known.
        "seconds": seconds if whole else None,
        **measure(checkpoint, best, sets),
        "megabytes": round(best.stat().st_size / 1e6, 1),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Train and evaluate the variants that are not in the results."""
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
    wanted = variants(checkpoint, args.cache, args.steps)
    sets = {"held out": held_out(args.cache[0], wanted["plain"][0])}
    sets |= evaluation_sets(checkpoint, args.work / "evaluation")
    results: Results = json.loads(RESULTS.read_text(encoding="utf-8"))
    found = results.setdefault(checkpoint.name.rpartition("/")[2], {})
    for name, (recipe, caches) in wanted.items():
        known = found.get(name, {}).get("recipe")
        if name not in (args.only or wanted) or known == json.loads(
            json.dumps(stored_fields(recipe))
        ):
            continue
        folder = args.work / name.replace(" ", "-")
        found[name] = examine(checkpoint, recipe, caches, folder, sets)
        replace_text(RESULTS, json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(found[name]["test-other"]), flush=True)
    page = RESULTS.with_suffix(".md")
    replace_text(page, renewed(page.read_text(encoding="utf-8"), results))


def tables(results: Results) -> str:
    """The results, a table for each model."""
    lines = []
    for model, found in results.items():
        steps = sorted({figures["recipe"]["steps"] for figures in found.values()})
        lines.append(TABLE.format(model=model, steps=" or ".join(map(str, steps))))
        lines += [_row(name, figures) for name, figures in found.items()]
    return "\n".join(lines).lstrip() + "\n\n"


def renewed(page: str, results: Results) -> str:
    """The page with these tables between its head and its section on the reader."""
    head, _, rest = page.partition("## ")
    return head + tables(results) + rest[rest.index("## The reader") :]


def _row(name: str, figures: Figures) -> str:
    hard = figures["test-other"]
    shares = " ".join(f"{share:.2f}".removeprefix("0") for share in hard["acceptance"])
    minutes = "–" if figures["seconds"] is None else f"{figures['seconds'] / 60:.1f}"  # noqa: RUF001
    return (
        f"| {name} | {figures['hours']} | {figures['held out']['tau']:.2f} | {hard['tau']:.2f} | "
        f"{hard['alpha']:.1%} | {figures['others']['tau']:.2f} | {shares} | {figures['megabytes']} | "
        f"{minutes} |"
    )


def hours(splits: TrajectorySplits) -> float:
    """Hours of training audio."""
    return round(sum(entry.seconds for entry in splits.training) / 3600, 2)


if __name__ == "__main__":
    main()
