"""Trained drafters on disk: one safetensors file whose metadata say all that is needed to read it.

A drafter belongs to one target, which its fingerprint names; another one's is refused. Weights lie
in float16. What the network computes is `model.drafter`'s.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from model.drafter import Architecture, ParallelDrafter
from model.load import Checkpoint, ModelError

AUTO, NONE = "auto", "none"  # what a drafter may be called besides the name of a file
BUNDLED = Path(__file__).with_name("drafters")


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
    Raises ValueError for weights that float16 cannot hold.
    """
    facts = {
        "architecture": json.dumps(asdict(network.architecture)),
        "target": target,
        "acceptance": json.dumps(list(acceptance)),
    }
    weights = {name: weight.half().contiguous() for name, weight in network.state_dict().items()}
    if unfit := sorted(name for name, weight in weights.items() if not weight.isfinite().all()):
        raise ValueError(f"weights that are not finite in float16: {', '.join(unfit)}")
    save_file(weights, path, metadata=dict(notes) | facts)


def read_facts(path: Path) -> dict[str, str]:
    """A drafter's metadata, of whatever target. Raises ModelError for what is no drafter's file."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ModelError(f"the drafter {path} cannot be read: {error}") from None
    if missing := sorted({"architecture", "target", "acceptance"} - facts.keys()):
        raise ModelError(f"{path} is no drafter: its metadata lack {', '.join(missing)}")
    return facts


def load_drafter(path: Path, checkpoint: Checkpoint) -> Trained:
    """Read a drafter for `checkpoint`, in float32.

    Raises ModelError, also for another target's drafter.
    """
    facts = read_facts(path)
    if facts["target"] != checkpoint.fingerprint:
        raise ModelError(
            f"the drafter {path} was made for another target than {checkpoint.name} "
            f"({checkpoint.source}): train one for it, or serve without"
        )
    try:
        architecture = _architecture(json.loads(facts["architecture"]))
        acceptance = tuple(float(share) for share in json.loads(facts["acceptance"]))
        _check(architecture, acceptance, checkpoint)
        network = ParallelDrafter(checkpoint.config, architecture)
        network.load_state_dict(
            {name: tensor.to(torch.float32) for name, tensor in load_file(path).items()}
        )
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, SafetensorError) as error:
        raise ModelError(f"the drafter {path} is not what it says: {error}") from None
    return Trained(path.stem, network, acceptance)


def bundled(checkpoint: Checkpoint) -> Path | None:
    """The drafter that is installed along for this very target, if there is one.

    Told by the fingerprint: another name for the same weights finds it, other weights of the same
    name do not. Raises ModelError for a damaged file.
    """
    for path in sorted(BUNDLED.glob("*.safetensors")):
        if read_facts(path)["target"] == checkpoint.fingerprint:
            return path
    return None


def choose(name: str, checkpoint: Checkpoint) -> Path | None:
    """The file of the drafter called `name`: "auto" is the bundled one, if any; "none" is none."""
    if name == AUTO:
        return bundled(checkpoint)
    return None if name == NONE else Path(name).expanduser()


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
