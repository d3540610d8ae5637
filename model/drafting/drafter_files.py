"""Drafter files: safetensors whose metadata say all that is needed to read them.

A file belongs to one target, by its fingerprint; another target's file is refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, assert_never

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.checkpoints.load import Checkpoint, ModelError
from model.drafting.parallel import Architecture, ParallelDrafter, SlotDrafter
from model.drafting.speech_draft import SlotSpeechDraft, SpeechArchitecture, SpeechDraft
from model.whisper.network import Whisper

Network = ParallelDrafter | SpeechDraft
NetworkArchitecture = Architecture | SpeechArchitecture
SlotSide = SlotDrafter | SlotSpeechDraft

AUTO, NONE = "auto", "none"  # names of drafters besides those of files
BUNDLED = Path(__file__).parent.with_name("drafters")

_LEVELS = 127  # of int8, on either side of zero
_STORED_NAMES = {"aux_layers": "taps", "prompt_len": "opening"}  # ours: those in files
_SCALES = ".scales"  # suffix of a matrix's name


@dataclass(frozen=True, slots=True)
class TrainedDrafter:
    """A drafter read from a file.

    acceptance: measured share of accepted candidates at each position, given those before it.
    """

    name: str
    network: Network
    acceptance: tuple[float, ...]

    @property
    def layers(self) -> int:
        """Layers of its cache."""
        architecture = self.network.architecture
        return architecture.layers if isinstance(architecture, Architecture) else 1

    def over_slots(self, whisper: Whisper, bias: Tensor, slots: int, *, packed: bool) -> SlotSide:
        """The drafter for `slots` sequences; arguments as for `drafter_cache.DrafterCache`."""
        match self.network:
            case ParallelDrafter():
                return SlotDrafter(self.network, whisper, bias, slots, packed=packed)
            case SpeechDraft():
                return SlotSpeechDraft(self.network, whisper, bias, slots, packed=packed)
            case _:
                assert_never(self.network)


def kind(network: Network) -> str:
    """The kind of a network, as files name it."""
    match network:
        case ParallelDrafter():
            return "parallel"
        case SpeechDraft():
            return "speech"
        case _:
            assert_never(network)


def save_network(
    path: Path,
    network: Network,
    *,
    target: str,
    acceptance: Sequence[float],
    notes: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a drafter file.

    target: the checkpoint's fingerprint. acceptance: as in `TrainedDrafter`. notes: data, licences,
    command. Matrices are stored in int8 with a scale for each row, which halves the file and costs no
    measurable acceptance; all else in float16. Raises ValueError for weights that float16 cannot hold.
    """
    metadata = {
        "kind": kind(network),
        "architecture": json.dumps(stored_fields(network.architecture)),
        "target": target,
        "acceptance": json.dumps(list(acceptance)),
    }
    weights = network.state_dict()
    fit = {name: bool(weight.half().isfinite().all()) for name, weight in weights.items()}
    if unfit := sorted(name for name, fits in fit.items() if not fits):
        raise ValueError(f"weights that are not finite in float16: {', '.join(unfit)}")
    save_file(_stored(weights), path, metadata=dict(notes) | metadata)


def stored_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass, or of a mapping, under their names in files."""
    fields = record if isinstance(record, Mapping) else asdict(record)
    return {_STORED_NAMES.get(name, name): value for name, value in fields.items()}


def read_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `stored_fields`: what a file has, under the names of today."""
    ours = {stored: name for name, stored in _STORED_NAMES.items()}
    return {ours.get(name, name): value for name, value in stored.items()}


def read_metadata(path: Path) -> dict[str, str]:
    """A drafter file's metadata, for any target. Raises ModelError for any other file."""
    try:
        with safe_open(path, framework="pt") as file:
            # The oldest files have no kind.
            metadata = {"kind": "parallel"} | dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{path} cannot be read as a drafter, a .safetensors file that `captiond train` made: {error}"
        ) from None
    if missing := sorted({"architecture", "target", "acceptance"} - metadata.keys()):
        raise ModelError(f"{path} is no drafter: its metadata lack {', '.join(missing)}")
    return metadata


def load_drafter(path: Path, checkpoint: Checkpoint) -> TrainedDrafter:
    """Read a drafter for `checkpoint`, in float32. Raises ModelError, also for another target's file."""
    metadata = read_metadata(path)
    if metadata["target"] != checkpoint.fingerprint:
        raise ModelError(
            f"{path} was made for another target than {checkpoint.name} "
            f"({checkpoint.source}): train one for it, or serve without"
        )
    try:
        architecture = _architecture(metadata)
        acceptance = tuple(float(share) for share in json.loads(metadata["acceptance"]))
        _check(architecture, acceptance, checkpoint)
        network = _network(architecture, checkpoint)
        network.load_state_dict(_restored(load_file(path)))
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, SafetensorError) as error:
        raise ModelError(f"{path} is not what it says: {error}") from None
    return TrainedDrafter(path.stem, network, acceptance)


def bundled(checkpoint: Checkpoint) -> Path | None:
    """The installed drafter for this target, found by fingerprint and not by name; None without one.

    Raises ModelError for a damaged file.
    """
    for path in sorted(BUNDLED.glob("*.safetensors")):
        if read_metadata(path)["target"] == checkpoint.fingerprint:
            return path
    return None


def choose(name: str, checkpoint: Checkpoint) -> Path | None:
    """The file of the drafter called `name`: "auto" is the bundled one, if any; "none" is None."""
    if name == AUTO:
        return bundled(checkpoint)
    return None if name == NONE else Path(name).expanduser()


def _stored(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    stored = {}
    for name, weight in weights.items():
        if weight.dim() != 2:
            stored[name] = weight.half().contiguous()
            continue
        scales = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / _LEVELS
        stored[name] = (weight / scales).round().to(torch.int8)
        stored[name + _SCALES] = scales
    return stored


def _restored(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Dequantised, in float32."""
    return {
        name: tensor.float() * stored.get(name + _SCALES, 1.0)
        for name, tensor in stored.items()
        if not name.endswith(_SCALES)
    }


def _check(
    architecture: NetworkArchitecture, acceptance: tuple[float, ...], checkpoint: Checkpoint
) -> None:
    """Raise ValueError for metadata that contradict each other or the target."""
    if architecture.block < 1 or len(acceptance) != architecture.block:
        raise ValueError(f"{len(acceptance)} shares for a block of {architecture.block}")
    blocks, vocabulary = checkpoint.config.decoder_layers, checkpoint.config.vocab_size
    ids = architecture.vocabulary
    for name, numbers, most in (
        ("aux_layers", architecture.aux_layers, blocks),
        ("vocabulary", (0,) if ids is None else ids, vocabulary),
    ):
        ascending = bool(numbers) and list(numbers) == sorted(set(numbers))
        if not ascending or not 0 <= numbers[0] <= numbers[-1] < most:
            raise ValueError(f"{name} must be ascending numbers below {most}")


def _architecture(metadata: Mapping[str, str]) -> NetworkArchitecture:
    fields = read_fields(json.loads(metadata["architecture"]))
    block, aux_layers, ids = int(fields["block"]), tuple(fields["aux_layers"]), fields["vocabulary"]
    vocabulary = None if ids is None else tuple(ids)
    match metadata["kind"]:
        case "parallel":
            return Architecture(
                layers=int(fields["layers"]),
                block=block,
                aux_layers=aux_layers,
                vocabulary=vocabulary,
                rope=bool(fields["rope"]),
                history=bool(fields["history"]),
                audio=bool(fields["audio"]),
            )
        case "speech":
            return SpeechArchitecture(block, aux_layers, vocabulary)
        case other:
            raise ValueError(f"drafters are of kind parallel or speech, not {other}")


def _network(architecture: NetworkArchitecture, checkpoint: Checkpoint) -> Network:
    """A network with initial weights."""
    match architecture:
        case Architecture():
            return ParallelDrafter(checkpoint.config, architecture)
        case SpeechArchitecture():
            return SpeechDraft(checkpoint.config, architecture)
        case _:
            assert_never(architecture)
