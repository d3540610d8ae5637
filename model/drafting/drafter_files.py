"""Drafters on disk: one safetensors file whose metadata say all that is needed to read it.

Each belongs to one target, which its fingerprint names; another one's is refused. What the networks
compute is for `model.drafting.parallel` and `model.drafting.speech_draft` to say.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import assert_never

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

AUTO, NONE = "auto", "none"  # what a drafter may be called besides the name of a file
BUNDLED = Path(__file__).parent.with_name("drafters")

_LEVELS = 127  # of int8, to either side
_SCALES = ".scales"  # behind the name of a matrix


@dataclass(frozen=True, slots=True)
class Trained:
    """A drafter as it comes from a file.

    acceptance: measured share of accepted candidates at each position, given those before.
    """

    name: str
    network: Network
    acceptance: tuple[float, ...]

    @property
    def layers(self) -> int:
        """Layers that remember something of every slot."""
        plan = self.network.architecture
        return plan.layers if isinstance(plan, Architecture) else 1

    def over_slots(self, whisper: Whisper, bias: Tensor, slots: int, *, packed: bool) -> SlotSide:
        """It at work for `slots` utterances. Arguments as for `model.drafting.drafter_cache.DraftMemory`."""
        match self.network:
            case ParallelDrafter():
                return SlotDrafter(self.network, whisper, bias, slots, packed=packed)
            case SpeechDraft():
                return SlotSpeechDraft(self.network, whisper, bias, slots, packed=packed)
            case _:
                assert_never(self.network)


def kind(network: Network) -> str:
    """What files call such a network."""
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
    """Write a safetensors file whose metadata say all that is needed to read it.

    target: the fingerprint of the checkpoint that it serves. acceptance: measured share of accepted
    candidates at each position, given those before. notes: data, licences, command. Matrices are stored in int8 with a scale for each row, which halves the file and costs nothing
    that a drafter's acceptance shows; all else in float16. Raises ValueError for weights that
    float16 cannot hold.
    """
    facts = {
        "kind": kind(network),
        "architecture": json.dumps(asdict(network.architecture)),
        "target": target,
        "acceptance": json.dumps(list(acceptance)),
    }
    weights = network.state_dict()
    fit = {name: bool(weight.half().isfinite().all()) for name, weight in weights.items()}
    if unfit := sorted(name for name, fits in fit.items() if not fits):
        raise ValueError(f"weights that are not finite in float16: {', '.join(unfit)}")
    save_file(_stored(weights), path, metadata=dict(notes) | facts)


def read_metadata(path: Path) -> dict[str, str]:
    """A network's metadata, of whatever target. Raises ModelError for what is no such file."""
    try:
        with safe_open(path, framework="pt") as file:
            # The first files tell no kind: there was but one.
            facts = {"kind": "parallel"} | dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{path} cannot be read as a drafter, a .safetensors file that `captiond train` made: {error}"
        ) from None
    if missing := sorted({"architecture", "target", "acceptance"} - facts.keys()):
        raise ModelError(f"{path} is no drafter: its metadata lack {', '.join(missing)}")
    return facts


def load_drafter(path: Path, checkpoint: Checkpoint) -> Trained:
    """Read a drafter for `checkpoint`, in float32. Raises ModelError, also for another target's."""
    facts = read_metadata(path)
    if facts["target"] != checkpoint.fingerprint:
        raise ModelError(
            f"{path} was made for another target than {checkpoint.name} "
            f"({checkpoint.source}): train one for it, or serve without"
        )
    try:
        architecture = _architecture(facts)
        acceptance = tuple(float(share) for share in json.loads(facts["acceptance"]))
        _check(architecture, acceptance, checkpoint)
        network = _network(architecture, checkpoint)
        network.load_state_dict(_restored(load_file(path)))
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, SafetensorError) as error:
        raise ModelError(f"{path} is not what it says: {error}") from None
    return Trained(path.stem, network, acceptance)


def bundled(checkpoint: Checkpoint) -> Path | None:
    """The drafter that is installed along for this very target, if there is one.

    Told by the fingerprint: another name for the same weights finds it, other weights of the same
    name do not. Raises ModelError for a damaged file.
    """
    for path in sorted(BUNDLED.glob("*.safetensors")):
        if read_metadata(path)["target"] == checkpoint.fingerprint:
            return path
    return None


def choose(name: str, checkpoint: Checkpoint) -> Path | None:
    """The file of the drafter called `name`: "auto" is the bundled one, if any; "none" is none."""
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
    """In float32."""
    return {
        name: tensor.float() * stored.get(name + _SCALES, 1.0)
        for name, tensor in stored.items()
        if not name.endswith(_SCALES)
    }


def _check(
    architecture: NetworkArchitecture, acceptance: tuple[float, ...], checkpoint: Checkpoint
) -> None:
    """Raises ValueError for facts that contradict each other or the target."""
    if architecture.block < 1 or len(acceptance) != architecture.block:
        raise ValueError(f"{len(acceptance)} shares for a block of {architecture.block}")
    blocks, vocabulary = checkpoint.config.decoder_layers, checkpoint.config.vocab_size
    ids = architecture.vocabulary
    for name, numbers, most in (
        ("taps", architecture.aux_layers, blocks),
        ("vocabulary", (0,) if ids is None else ids, vocabulary),
    ):
        ascending = bool(numbers) and list(numbers) == sorted(set(numbers))
        if not ascending or not 0 <= numbers[0] <= numbers[-1] < most:
            raise ValueError(f"{name} must be ascending numbers below {most}")


def _architecture(facts: Mapping[str, str]) -> NetworkArchitecture:
    told = json.loads(facts["architecture"])
    block, aux_layers, ids = int(told["block"]), tuple(told["taps"]), told["vocabulary"]
    vocabulary = None if ids is None else tuple(ids)
    match facts["kind"]:
        case "parallel":
            return Architecture(
                layers=int(told["layers"]),
                block=block,
                aux_layers=aux_layers,
                vocabulary=vocabulary,
                rope=bool(told["rope"]),
                history=bool(told["history"]),
                audio=bool(told["audio"]),
            )
        case "speech":
            return SpeechArchitecture(block, aux_layers, vocabulary)
        case other:
            raise ValueError(f"drafters are of kind parallel or speech, not {other}")


def _network(architecture: NetworkArchitecture, checkpoint: Checkpoint) -> Network:
    """One that has no weights yet."""
    match architecture:
        case Architecture():
            return ParallelDrafter(checkpoint.config, architecture)
        case SpeechArchitecture():
            return SpeechDraft(checkpoint.config, architecture)
        case _:
            assert_never(architecture)
