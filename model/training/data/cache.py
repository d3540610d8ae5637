"""Trajectories on disk: a directory of safetensors shards, each whole or absent.

A cache belongs to one target, one list of passages and one choice of auxiliary layers: facts.json names
them. An interrupted write leaves nothing that could be taken for a shard.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from model.drafting.drafter_files import read_fields, stored_fields
from model.training.data.corpus import Passage
from model.training.data.files import replace_text, replacing
from model.training.data.teacher import Trajectory

_FORMAT = 1


class CacheError(Exception):
    """A cache that cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class CacheMetadata:
    """What a cache was made from.

    target: fingerprint of the checkpoint; model: its name. aux_layers: decoder blocks, zero-based.
    listing: the passages' digest (`corpus.listing`); passages: their number. perturb: the seed of their
    random speeds and levels; None for unchanged ones.
    """

    target: str
    model: str
    aux_layers: tuple[int, ...]
    language: str
    listing: str
    passages: int
    format: int = _FORMAT
    perturb: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One trajectory's place in a cache, and its metadata."""

    shard: Path
    index: int
    speaker: str
    source: str
    licence: str
    seconds: float
    tokens: int
    prompt_len: int


def create(directory: Path, metadata: CacheMetadata) -> None:
    """Make a cache's directory, or continue one with the same metadata. Raises CacheError."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "facts.json"
    if path.exists():
        known = read_metadata(directory)
        if known != metadata:
            raise CacheError(
                f"{directory} was made from something else (model {known.model}, {known.passages} "
                f"passages, aux layers {list(known.aux_layers)}): name another directory, or delete it"
            )
        return
    try:
        replace_text(
            path, json.dumps({k: v for k, v in stored_fields(metadata).items() if v is not None})
        )
    except FileNotFoundError:
        # Another process of the same run has renamed the file that both had written.
        if not path.exists():
            raise


def read_metadata(directory: Path) -> CacheMetadata:
    """A cache's metadata. Raises CacheError."""
    try:
        stored = json.loads((directory / "facts.json").read_text(encoding="utf-8"))
        fields = read_fields(dict(stored))
        metadata = CacheMetadata(aux_layers=tuple(fields.pop("aux_layers")), **fields)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CacheError(f"{directory} is no cache of trajectories: {error}") from None
    if metadata.format != _FORMAT:
        raise CacheError(f"{directory} has format {metadata.format}, not {_FORMAT}: make it anew")
    return metadata


def shard_path(directory: Path, number: int) -> Path:
    """The path of shard `number`."""
    return directory / f"{number:05d}.safetensors"


def write_shard(
    path: Path, kept: Sequence[tuple[Passage, Trajectory]], excluded: Counter[str]
) -> None:
    """Write trajectories, and counts of excluded passages by reason. Raises OSError."""
    tensors: dict[str, Tensor] = {}
    rows = []
    for index, (passage, trajectory) in enumerate(kept):
        tensors[f"{index}.tokens"] = trajectory.tokens
        tensors[f"{index}.states"] = trajectory.states.contiguous()
        tensors[f"{index}.features"] = trajectory.features.contiguous()
        first = passage.parts[0]
        row = {
            "speaker": first.speaker,
            "source": first.source,
            "licence": first.licence,
            "seconds": passage.seconds,
            "tokens": len(trajectory.tokens),
            "prompt_len": trajectory.prompt_len,
        }
        rows.append(stored_fields(row))
    metadata = {"rows": json.dumps(rows), "excluded": json.dumps(excluded)}
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata)


def _shards(directory: Path) -> list[Path]:
    """Paths of the shards; a drafter file may lie beside them."""
    return sorted(path for path in directory.glob("*.safetensors") if path.stem.isdecimal())


def entries(directory: Path) -> Iterator[Entry]:
    """Every trajectory of the cache. Raises CacheError for a broken shard."""
    for path in _shards(directory):
        for index, row in enumerate(json.loads(_metadata(path)["rows"])):
            yield Entry(shard=path, index=index, **read_fields(row))


def write_left_out(directory: Path, counts: Counter[str]) -> None:
    """Write counts of recordings that never became passages, by reason. Raises OSError."""
    replace_text(directory / "left_out.json", json.dumps(counts))


def excluded(directory: Path) -> Counter[str]:
    """Counts of excluded recordings and passages, by reason. Raises CacheError."""
    path = directory / "left_out.json"
    counts = Counter(json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})
    return counts + passages_excluded(directory)


def passages_excluded(directory: Path) -> Counter[str]:
    """Counts of excluded passages, by reason. Raises CacheError."""
    counts = Counter[str]()
    for path in _shards(directory):
        counts.update(json.loads(_metadata(path)["excluded"]))
    return counts


def read(entry: Entry) -> Trajectory:
    """Read one trajectory. Raises CacheError."""
    tokens, states, features = _tensors(entry, "tokens", "states", "features")
    return Trajectory(tokens, entry.prompt_len, states, features, finished=True)


def read_tokens(entry: Entry) -> Tensor:
    """The tokens of one trajectory alone. Raises CacheError."""
    (tokens,) = _tensors(entry, "tokens")
    return tokens


def _tensors(entry: Entry, *names: str) -> list[Tensor]:
    try:
        with safe_open(entry.shard, framework="pt") as file:
            return [file.get_tensor(f"{entry.index}.{name}") for name in names]
    except (OSError, SafetensorError) as error:
        raise CacheError(f"the shard {entry.shard} cannot be read ({error}): delete it") from None


def _metadata(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata())
    except (OSError, SafetensorError) as error:
        raise CacheError(f"the shard {path} cannot be read ({error}): delete it") from None
