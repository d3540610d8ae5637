"""Trained drafters on disk: one safetensors file whose metadata say all that is needed to read it.

A drafter belongs to one target, which its fingerprint names; another one's is refused. What the
network computes is `model.drafter`'s.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from model.drafter import Architecture, ParallelDrafter
from model.load import Checkpoint, ModelError


@dataclass(frozen=True, slots=True)
class Trained:
    """A drafter as it comes from a file.

    acceptance: measured share of accepted candidates at each position, given those before.
    """

    name: str
    network: ParallelDrafter
    acceptance: tuple[float, ...]


def save_drafter(
    path: Path,
    network: ParallelDrafter,
    *,
    target: str,
    acceptance: Sequence[float],
    notes: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a safetensors file whose metadata say all that is needed to read it.

    target: the fingerprint of the checkpoint that it drafts for. notes: data, licences, command.
    """
    facts = {
        "architecture": json.dumps(asdict(network.architecture)),
        "target": target,
        "acceptance": json.dumps(list(acceptance)),
    }
    save_file(network.state_dict(), path, metadata=dict(notes) | facts)


def load_drafter(path: Path, checkpoint: Checkpoint) -> Trained:
    """Read a drafter for `checkpoint`. Raises ModelError, also for another target's drafter."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelError(f"the drafter {path} cannot be read: {error}") from None
    if facts.get("target") != checkpoint.fingerprint:
        raise ModelError(
            f"the drafter {path} was made for another target than {checkpoint.name} "
            f"({checkpoint.source}): train one for it, or serve without"
        )
    try:
        architecture = _architecture(json.loads(facts["architecture"]))
        acceptance = tuple(float(share) for share in json.loads(facts["acceptance"]))
        _check(architecture, acceptance, checkpoint)
        network = ParallelDrafter(checkpoint.config, architecture)
        network.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"the drafter {path} is not what it says: {error}") from None
    return Trained(path.stem, network, acceptance)


def _check(
    architecture: Architecture, acceptance: tuple[float, ...], checkpoint: Checkpoint
) -> None:
    """Raises ValueError for facts that contradict each other or the target."""
    if architecture.block < 1 or len(acceptance) != architecture.block:
        raise ValueError(f"{len(acceptance)} shares for a block of {architecture.block}")
    blocks, vocabulary = checkpoint.config.decoder_layers, checkpoint.config.vocab_size
    for name, numbers, most in (
        ("taps", architecture.taps, blocks),
        ("vocabulary", architecture.vocabulary or (0,), vocabulary),
    ):
        if list(numbers) != sorted(set(numbers)) or not 0 <= numbers[0] <= numbers[-1] < most:
            raise ValueError(f"{name} must be ascending numbers below {most}")


def _architecture(facts: Mapping[str, Any]) -> Architecture:
    vocabulary = facts["vocabulary"]
    return Architecture(
        layers=int(facts["layers"]),
        block=int(facts["block"]),
        taps=tuple(facts["taps"]),
        vocabulary=None if vocabulary is None else tuple(vocabulary),
        rope=bool(facts["rope"]),
        history=bool(facts["history"]),
        audio=bool(facts["audio"]),
    )
