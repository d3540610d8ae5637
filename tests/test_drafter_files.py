import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from model.checkpoints.load import ModelError
from model.drafting import drafter_files
from model.drafting.parallel import Architecture, ParallelDrafter, SlotDrafter
from model.drafting.speech_draft import SlotSpeechDraft, SpeechArchitecture, SpeechDraft
from tests.support.tiny import CHECKPOINT, tiny_checkpoint
from tests.support.tiny_drafters import tiny_parallel, tiny_speech_draft, whisper_of

SHARES = (0.9, 0.7, 0.5, 0.3)


@pytest.mark.parametrize("vocabulary", [None, (1, 5, 9)])
@pytest.mark.parametrize(
    ("make", "side"),
    [
        (tiny_parallel, SlotDrafter),
        (lambda ids: tiny_speech_draft(ids, block=4).network, SlotSpeechDraft),
    ],
    ids=["parallel", "speech"],
)
def test_a_file_gives_the_same_drafter(
    tmp_path: Path,
    make: Callable[[tuple[int, ...] | None], drafter_files.Network],
    side: type,
    vocabulary: tuple[int, ...] | None,
) -> None:
    """Kind, architecture, acceptance and weights survive; the name is the file's.

    Matrices as int8 has them, to half a step of each row's scale; all else as float16 has it.
    """
    saved = make(vocabulary)
    path = tmp_path / "swift.safetensors"
    drafter_files.save_network(path, saved, target=CHECKPOINT.fingerprint, acceptance=SHARES)
    read = drafter_files.load_drafter(path, CHECKPOINT)
    assert (read.name, read.acceptance) == ("swift", SHARES)
    assert type(read.network) is type(saved)
    assert read.network.architecture == saved.architecture
    for name, tensor in saved.state_dict().items():
        error = (read.network.state_dict()[name] - tensor).abs()
        step = tensor.abs().amax(-1, keepdim=True) / (127 if tensor.dim() == 2 else 1024)
        assert (error <= step * 0.51).all()
    bias = CHECKPOINT.tokens.bias(first=False)
    assert type(read.over_slots(whisper_of(CHECKPOINT), bias, 1, packed=False)) is side


def rewritten(path: Path, **changes: str | None) -> None:
    """The parallel drafter's file with other metadata; None takes a fact out."""
    drafter_files.save_network(
        path, tiny_parallel(), target=CHECKPOINT.fingerprint, acceptance=SHARES
    )
    with safe_open(path, framework="pt") as file:
        facts = file.metadata() | changes
    kept = {name: fact for name, fact in facts.items() if fact is not None}
    save_file(tiny_parallel().state_dict(), path, metadata=kept)


def test_the_first_files_are_of_parallel_drafters(tmp_path: Path) -> None:
    """They were written before there were kinds."""
    path = tmp_path / "d.safetensors"
    rewritten(path, kind=None)
    assert isinstance(drafter_files.load_drafter(path, CHECKPOINT).network, ParallelDrafter)


@pytest.mark.parametrize(
    "lie",
    [
        {"kind": "speech"},
        {"kind": "oracle"},
        {"architecture": json.dumps(asdict(tiny_parallel().architecture) | {"taps": []})},
    ],
    ids=["another kind", "no kind that there is", "no taps"],
)
def test_facts_that_do_not_fit_the_weights_are_refused(tmp_path: Path, lie: dict[str, str]) -> None:
    path = tmp_path / "d.safetensors"
    rewritten(path, **lie)
    with pytest.raises(ModelError, match="is not what it says"):
        drafter_files.load_drafter(path, CHECKPOINT)


def test_fields_come_back_from_their_names_in_files() -> None:
    fields = {"aux_layers": (1, 2), "prompt_len": 4, "block": 8}
    assert drafter_files.stored_fields(fields) == {"taps": (1, 2), "opening": 4, "block": 8}
    assert drafter_files.read_fields(drafter_files.stored_fields(fields)) == fields


def test_another_targets_drafter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    drafter_files.save_network(
        path, tiny_parallel(), target=tiny_checkpoint(seed=9).fingerprint, acceptance=[0.5] * 4
    )
    with pytest.raises(ModelError, match="made for another target than tiny-random"):
        drafter_files.load_drafter(path, CHECKPOINT)


@pytest.mark.parametrize(
    ("architecture", "acceptance"),
    [
        (Architecture(2, 4, (0, 1)), [0.5] * 3),
        (Architecture(2, 4, (0, 2)), [0.5] * 4),
        (Architecture(2, 4, (1, 0)), [0.5] * 4),
        (Architecture(2, 4, (0, 1), (5, 9_999)), [0.5] * 4),
        (Architecture(2, 4, (0, 1), ()), [0.5] * 4),
        (SpeechArchitecture(4, (0, 1)), [0.5] * 3),
        (SpeechArchitecture(4, (0, 2)), [0.5] * 4),
        (SpeechArchitecture(4, (0, 1), (9, 5)), [0.5] * 4),
    ],
)
def test_contradictory_facts_are_refused(
    tmp_path: Path, architecture: Architecture | SpeechArchitecture, acceptance: list[float]
) -> None:
    path = tmp_path / "d.safetensors"
    drafter: drafter_files.Network
    if isinstance(architecture, Architecture):
        drafter = ParallelDrafter(CHECKPOINT.config, architecture)
    else:
        drafter = SpeechDraft(CHECKPOINT.config, architecture)
    drafter_files.save_network(path, drafter, target=CHECKPOINT.fingerprint, acceptance=acceptance)
    with pytest.raises(ModelError, match="is not what it says"):
        drafter_files.load_drafter(path, CHECKPOINT)


def test_damaged_drafters_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    with pytest.raises(ModelError, match="cannot be read"):
        drafter_files.load_drafter(path, CHECKPOINT)
    path.write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="cannot be read"):
        drafter_files.load_drafter(path, CHECKPOINT)
    save_file({"x": torch.ones(1)}, path, metadata={"target": CHECKPOINT.fingerprint})
    with pytest.raises(ModelError, match="is no drafter: its metadata lack acceptance, arch"):
        drafter_files.load_drafter(path, CHECKPOINT)
    facts = {"target": CHECKPOINT.fingerprint, "architecture": "{}", "acceptance": "[]"}
    save_file({"x": torch.ones(1)}, path, metadata=facts)
    with pytest.raises(ModelError, match=re.escape("is not what it says")):
        drafter_files.load_drafter(path, CHECKPOINT)


def save(path: Path, seed: int = 0) -> Path:
    target = tiny_checkpoint(seed=seed).fingerprint
    drafter_files.save_network(path, tiny_parallel(), target=target, acceptance=[0.5] * 4)
    return path


def test_a_file_is_a_quarter_of_the_network(tmp_path: Path) -> None:
    """About a byte a weight, and what is said of them."""
    weights = sum(tensor.numel() for tensor in tiny_parallel().state_dict().values())
    size = save(tmp_path / "d.safetensors").stat().st_size
    assert weights < size < 1.3 * weights + 10_000


def test_a_file_written_twice_is_the_same(tmp_path: Path) -> None:
    """What int8 has lost once is not lost again."""
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    drafter_files.save_network(
        first, tiny_parallel(), target=CHECKPOINT.fingerprint, acceptance=SHARES
    )
    once = drafter_files.load_drafter(first, CHECKPOINT).network
    drafter_files.save_network(second, once, target=CHECKPOINT.fingerprint, acceptance=SHARES)
    twice = drafter_files.load_drafter(second, CHECKPOINT).network.state_dict()
    assert all(torch.allclose(twice[n], w, atol=1e-7) for n, w in once.state_dict().items())


def test_weights_that_float16_cannot_hold_are_not_written(tmp_path: Path) -> None:
    broken = tiny_parallel()
    with torch.no_grad():
        broken.masks[0, 0] = 1e6
    path = tmp_path / "d.safetensors"
    with pytest.raises(ValueError, match="not finite in float16: masks"):
        drafter_files.save_network(path, broken, target="", acceptance=[0.5] * 4)
    assert not path.exists()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where bundled drafters lie."""
    monkeypatch.setattr(drafter_files, "BUNDLED", tmp_path / "drafters")
    (tmp_path / "drafters").mkdir()
    return tmp_path / "drafters"


def test_the_bundled_drafter_is_told_by_its_target(installed: Path) -> None:
    """Whatever the files are called; none for a target that none was made for."""
    save(installed / "a.safetensors", seed=9)
    mine = save(installed / "b.safetensors")
    assert drafter_files.bundled(CHECKPOINT) == mine
    assert drafter_files.bundled(tiny_checkpoint(seed=3)) is None


def test_a_damaged_bundled_drafter_is_no_silent_start_without(installed: Path) -> None:
    (installed / "a.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="cannot be read"):
        drafter_files.bundled(CHECKPOINT)


def test_a_drafter_is_named_by_file_or_by_word(installed: Path) -> None:
    assert drafter_files.choose("auto", CHECKPOINT) is None
    mine = save(installed / "b.safetensors")
    assert drafter_files.choose("auto", CHECKPOINT) == mine
    assert drafter_files.choose("none", CHECKPOINT) is None
    assert drafter_files.choose("~/d.safetensors", CHECKPOINT) == Path.home() / "d.safetensors"
