"""The papers' experiments in shape: what makes a drafter good, one change at a time.

    python -m tests.benchmarks.bench_drafters --cache REAL SYNTHETIC … --work FOLDER [--steps 400] [--only NAME …]

Every variant is trained with the same seed, steps and data, and measured by the walk of greedy
decoding on recordings that no training heard: of the speakers that the first cache holds out,
LibriSpeech test-other, and a spread of the other English test recordings of up to 30 s. The first
cache holds the real speech, the others the synthetic; FOLDER is for one model. What is finished is
not done again, unless `--again` wants what is trained to be measured anew; results go into
docs/drafters.json as they come, by model, and into docs/drafters.md.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from model.checkpoints.load import Checkpoint, load
from model.drafting.drafter_files import load_drafter
from model.engine.engine import BLOCK
from model.training.data import cache
from model.training.data.cache import Entry
from model.training.data.corpus import Passage, Recording, find
from model.training.data.distil import distil
from model.training.data.files import replace_text
from model.training.data.trajectories import TrajectorySplits
from model.training.evaluate import judge
from model.training.recipe import Recipe, aux_layers_for, last_layers, speech_aux_layers
from model.training.score import Score
from model.training.trainer import Trainer
from tests.support.audio import MANIFEST

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "drafters.json"
HEAD = """# What makes a drafter good

One change at a time, with the same seed and the same audio; by `python -m tests.benchmarks.bench_drafters`. Drafters learn from
4 passages with 16 anchors a step. They tap the blocks in front of those that their layers begin as, beside five that
are spread over the decoder (a Speech-Draft three alone), so that other layers may mean other aux layers, too.

τ: tokens a round, on at most 64 passages of speakers held out from training, the same ones for every variant; on
LibriSpeech test-other; and on a spread of other English test recordings. It counts the rounds after the prefill.
Minutes are of training, where one run did all of it; with `--threads 1`, the default, they are of one thread.
"""
READER = """
## The reader, which was deleted

A reader was a small network with a CTC head that read the whole utterance from the encoder's states at its start; the
prefill verified its text. It was deleted because it won no time: where greedy decoding is 1.00, at batches of 1, 4 and
8 the reader was at 1.19, 1.01 and 0.97, the drafter at 1.19, 1.10 and 1.08, and both at 1.15, 1.02 and 0.96
([bench.md](bench.md)). Nor did it with a text to reuse ([reuse.json](reuse.json)).

For base it was trained for 2,000 steps of 8 passages: 55 minutes of one core; 10.0 million weights, 10,258 tokens, 10.2
MB. Tokens for each pass of the model, by the walk, the prefill counted:

| audio | drafter | reader | both |
|---|---|---|---|
| LibriSpeech test-other (70 files) | 2.89 | 2.35 | 3.28 |
| other English recordings (56 files) | 2.53 | 2.12 | 2.83 |

On speakers held out the reader had 3.37. Together they needed the fewest passes, but a reading cost as much as two
thirds of a round (12 ms for 8 s of speech).
"""
TABLE = """
## {model}

{steps} steps each.

| variant | hours | τ held out | τ test-other | α test-other | τ others | accepted by position (test-other) | MB | minutes |
|---|---|---|---|---|---|---|---|---|"""
HARD = "librispeech_testother"
OTHERS = 7  # of the other recordings one in so many
HELD_OUT = 64  # passages
CPU = torch.device("cpu")

CacheMetadata = dict[str, Any]  # of a variant
Results = dict[str, dict[str, CacheMetadata]]  # by model, then by variant


@dataclass(frozen=True, slots=True)
class Heard:
    """What is measured on. aux layers: the blocks that its features are of."""

    entries: Sequence[Entry]
    aux_layers: tuple[int, ...]


def variants(
    checkpoint: Checkpoint, caches: list[Path], steps: int
) -> dict[str, tuple[Recipe, list[Path]]]:
    """By name: how to train each, and on what."""
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


def heard_in_tests(checkpoint: Checkpoint, folder: Path) -> dict[str, Heard]:
    """The recordings to measure on, each recording alone."""
    found = find([MANIFEST], use="test")
    sets: dict[str, list[Recording]] = {"test-other": [], "others": []}
    for recording in found:
        sets["test-other" if HARD in recording.origin else "others"].append(recording)
    sets["others"] = sets["others"][::OTHERS]
    for name, recordings in sets.items():
        distil(checkpoint, [Passage((one,)) for one in recordings], folder / name, device=CPU)
    return {
        name: Heard(
            list(cache.entries(folder / name)), cache.read_metadata(folder / name).aux_layers
        )
        for name in sets
    }


def held_out(real: Path, recipe: Recipe) -> Heard:
    """A spread of what the speakers say whom that cache keeps out of every training."""
    splits = TrajectorySplits([real], replace(recipe, validation=HELD_OUT))
    return Heard(splits.validation, splits.metadata.aux_layers)


def facts_of(score: Score) -> CacheMetadata:
    """Figures of one walk."""
    return {
        "rounds": score.rounds,
        "tokens": score.tokens,
        "tau": round(score.tau, 3),
        "alpha": round(score.alpha, 4),
        "acceptance": [round(share, 3) for share in score.acceptance(BLOCK)],
    }


def measure(checkpoint: Checkpoint, file: Path, audio: dict[str, Heard]) -> CacheMetadata:
    """A trained network on every set."""
    network = load_drafter(file, checkpoint).network
    return {
        name: facts_of(
            judge(
                checkpoint,
                network,
                map(cache.read, encoder_len.entries),
                kept=encoder_len.aux_layers,
                device=CPU,
            )
        )
        for name, encoder_len in audio.items()
    }


def examine(
    checkpoint: Checkpoint,
    recipe: Recipe,
    caches: Sequence[Path],
    folder: Path,
    audio: dict[str, Heard],
    known: CacheMetadata,
) -> CacheMetadata:
    """Train a variant, or go on with it, and measure it. known: what an earlier run found out."""
    whole = not (folder / "checkpoint.pt").exists()
    trainer = Trainer(checkpoint, caches, recipe, folder)
    began = time.monotonic()
    trainer.run()
    seconds = round(time.monotonic() - began)
    best = folder / "best.safetensors"
    return {
        "recipe": asdict(recipe),
        "hours": hours(trainer.splits),
        # Of a run that was stopped nobody knows them.
        "seconds": seconds if whole else known.get("seconds"),
        **measure(checkpoint, best, audio),
        "megabytes": round(best.stat().st_size / 1e6, 1),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure what is not yet in the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="base")
    parser.add_argument("--cache", nargs="+", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="variants, by name (default: all)")
    parser.add_argument("--again", action="store_true", help="measure what is finished anew")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    checkpoint = load(args.model)
    wanted = variants(checkpoint, args.cache, args.steps)
    audio = {"held out": held_out(args.cache[0], wanted["plain"][0])}
    audio |= heard_in_tests(checkpoint, args.work / "heard")
    results = read_results(RESULTS)
    found = results.setdefault(checkpoint.name.rpartition("/")[2], {})
    for name, (recipe, caches) in wanted.items():
        known = found.get(name, {})
        same = known.get("recipe") == json.loads(json.dumps(asdict(recipe)))
        if (args.only and name not in args.only) or (same and not args.again):
            continue
        folder = args.work / name.replace(" ", "-")
        found[name] = examine(checkpoint, recipe, caches, folder, audio, known if same else {})
        replace_text(RESULTS, json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(found[name]["test-other"]), flush=True)
    replace_text(RESULTS.with_suffix(".md"), page(results))


def read_results(path: Path) -> Results:
    """What is known. The first files named no model: they are of base."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return {"base": found} if any("recipe" in facts for facts in found.values()) else found


def page(results: Results) -> str:
    """The results, a table for each model."""
    lines = [HEAD.rstrip()]
    for model, found in results.items():
        if not found:
            continue
        steps = sorted({facts["recipe"]["steps"] for facts in found.values()})
        lines.append(TABLE.format(model=model, steps=" or ".join(map(str, steps))))
        lines += [_row(name, facts) for name, facts in found.items()]
    return "\n".join(lines) + "\n" + READER


def _row(name: str, facts: CacheMetadata) -> str:
    hard = facts["test-other"]
    shares = " ".join(f"{share:.2f}".removeprefix("0") for share in hard["acceptance"])
    minutes = "–" if facts["seconds"] is None else f"{facts['seconds'] / 60:.1f}"  # noqa: RUF001
    return (
        f"| {name} | {facts['hours']} | {facts['held out']['tau']:.2f} | {hard['tau']:.2f} | "
        f"{hard['alpha']:.1%} | {facts['others']['tau']:.2f} | {shares} | {facts['megabytes']} | "
        f"{minutes} |"
    )


def hours(splits: TrajectorySplits) -> float:
    """Of audio that is trained on."""
    return round(sum(entry.seconds for entry in splits.training) / 3600, 2)


if __name__ == "__main__":
    main()
