"""A drafter's training data and score, as notes in its file and as text for people.

Notes are text, so that any reader of safetensors can show them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from model.drafting.drafter_files import read_fields
from model.training.data.cache import Entry
from model.training.score import Score

_WIDTH = 14


@dataclass(frozen=True, slots=True)
class Share:
    """One source's share of the data under one licence."""

    source: str
    licence: str
    hours: float
    passages: int


def shares(entries: Iterable[Entry]) -> list[Share]:
    """Hours and passages by source and licence, in alphabetical order."""
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    for entry in entries:
        seconds, count = sums.get((entry.source, entry.licence), (0.0, 0))
        sums[entry.source, entry.licence] = seconds + entry.seconds, count + 1
    return [
        Share(source, licence, round(seconds / 3600, 3), count)
        for (source, licence), (seconds, count) in sorted(sums.items())
    ]


def data_notes(trained: Sequence[Entry], excluded: Mapping[str, int]) -> dict[str, str]:
    """Notes on the training data, and on exclusions by reason."""
    parts = shares(trained)
    return {
        "data": json.dumps([asdict(part) for part in parts]),
        "data_licences": "; ".join(sorted({part.licence for part in parts})),
        "excluded": json.dumps(dict(sorted(excluded.items()))),
    }


def score_notes(score: Score, held_out: Sequence[Entry]) -> dict[str, str]:
    """Notes on the score, and on the trajectories that it was measured on."""
    return {
        "alpha": f"{score.alpha:.4f}",
        "tau": f"{score.tau:.4f}",
        "measured_on": json.dumps(
            {
                "passages": len(held_out),
                "speakers": len({(entry.source, entry.speaker) for entry in held_out}),
                "hours": round(sum(entry.seconds for entry in held_out) / 3600, 3),
                "rounds": score.rounds,
                "tokens": score.tokens,
            }
        ),
    }


def describe_score(score: Score, positions: int) -> str:
    """A score as lines. positions: show the acceptance at so many positions of a block."""
    return _lines(
        {
            "α": f"{score.alpha:.4f}",
            "τ": f"{score.tau:.4f}",
            "rounds": f"{score.rounds:,}, {score.tokens:,} tokens",
            "acceptance": f"{_shares_of(score.acceptance(positions))} (each given those before)",
        }
    )


def describe_file(path: Path, metadata: Mapping[str, str]) -> str:
    """A drafter file's metadata as lines; missing notes are left out.

    Raises KeyError, TypeError, ValueError or AttributeError for metadata in another form.
    """
    architecture = read_fields(json.loads(metadata["architecture"]))
    vocabulary = architecture["vocabulary"]
    recipe = json.loads(metadata.get("recipe", "{}"))
    origin = f" from blocks {_numbers(recipe['layers'])}" if "layers" in recipe else ""
    lines = {
        "file": f"{path}, {path.stat().st_size / 1e6:.1f} MB",
        "target": f"{metadata.get('model', 'not named')}, fingerprint {metadata['target']}",
        "architecture": _architecture(metadata["kind"], architecture, origin),
        "vocabulary": "the target's" if vocabulary is None else f"{len(vocabulary):,} tokens",
        "acceptance": f"{_shares_of(json.loads(metadata['acceptance']))} (each given those before)",
    }
    if "tau" in metadata:
        measured = json.loads(metadata["measured_on"])
        lines["α, τ"] = (
            f"{metadata['alpha']}, {metadata['tau']}: {measured['passages']:,} held-out passages "
            f"({measured['hours']:.2f} h) of {measured['speakers']} speakers, "
            f"{measured['rounds']:,} rounds"
        )
    if "step" in metadata:
        lines["trained"] = f"{metadata['step']} steps"
    for number, part in enumerate(json.loads(metadata.get("data", "[]"))):
        lines["data" if not number else " " * number] = (
            f"{part['source']}: {part['hours']:.2f} h, {part['passages']:,} passages "
            f"({part['licence']})"
        )
    if excluded := json.loads(metadata.get("excluded", "{}")):
        lines["left out"] = ", ".join(f"{count:,} {reason}" for reason, count in excluded.items())
    for key, name in (("data_licences", "licences"), ("command", "command")):
        if key in metadata:
            lines[name] = metadata[key]
    return _lines(lines)


def _architecture(kind: str, architecture: Mapping[str, Any], origin: str) -> str:
    sizes = f"{architecture['block']} candidates, aux layers {_numbers(architecture['aux_layers'])}"
    if kind == "speech":
        return f"Speech-Draft, one layer{origin}, {sizes}"
    memories = [name for name in ("history", "audio") if architecture[name]]
    places = "rotary" if architecture["rope"] else "absolute"
    return (
        f"parallel, {architecture['layers']} layers{origin}, {sizes}, {places} positions, "
        f"memories: {', '.join(memories) or 'none'}"
    )


def _lines(metadata: Mapping[str, str]) -> str:
    return "\n".join(f"{name.strip():{_WIDTH}}{text}" for name, text in metadata.items())


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _shares_of(shares: Iterable[float]) -> str:
    return " ".join(f"{share:.3f}" for share in shares)
