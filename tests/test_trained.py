import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from model.drafter import Architecture, ParallelDrafter
from model.load import ModelError
from model.trained import load_drafter, save_drafter
from tests.test_drafter import network
from tests.tiny import tiny_checkpoint

CHECKPOINT = tiny_checkpoint()


def test_a_file_gives_the_same_drafter(tmp_path: Path) -> None:
    """Weights, architecture and acceptance survive; the name is the file's."""
    for vocabulary in (None, (1, 5, 9)):
        saved = network(vocabulary)
        path = tmp_path / "swift.safetensors"
        shares = (0.9, 0.7, 0.5, 0.3)
        save_drafter(path, saved, target=CHECKPOINT.fingerprint, acceptance=shares)
        read = load_drafter(path, CHECKPOINT)
        assert (read.name, read.acceptance) == ("swift", shares)
        assert read.network.architecture == saved.architecture
        for name, tensor in saved.state_dict().items():
            assert torch.equal(read.network.state_dict()[name], tensor)


def test_another_targets_drafter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    save_drafter(path, network(), target=tiny_checkpoint(seed=9).fingerprint, acceptance=[0.5] * 4)
    with pytest.raises(ModelError, match="made for another target than tiny-random"):
        load_drafter(path, CHECKPOINT)


@pytest.mark.parametrize(
    ("architecture", "acceptance"),
    [
        (Architecture(2, 4, (0, 1)), [0.5] * 3),
        (Architecture(2, 4, (0, 2)), [0.5] * 4),
        (Architecture(2, 4, (1, 0)), [0.5] * 4),
        (Architecture(2, 4, (0, 1), (5, 9_999)), [0.5] * 4),
    ],
)
def test_contradictory_facts_are_refused(
    tmp_path: Path, architecture: Architecture, acceptance: list[float]
) -> None:
    path = tmp_path / "d.safetensors"
    drafter = ParallelDrafter(CHECKPOINT.config, architecture)
    save_drafter(path, drafter, target=CHECKPOINT.fingerprint, acceptance=acceptance)
    with pytest.raises(ModelError, match="is not what it says"):
        load_drafter(path, CHECKPOINT)


def test_damaged_drafters_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    with pytest.raises(ModelError, match="cannot be read"):
        load_drafter(path, CHECKPOINT)
    path.write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="cannot be read"):
        load_drafter(path, CHECKPOINT)
    facts = {"target": CHECKPOINT.fingerprint, "architecture": "{}", "acceptance": "[]"}
    save_file({"x": torch.ones(1)}, path, metadata=facts)
    with pytest.raises(ModelError, match=re.escape("is not what it says")):
        load_drafter(path, CHECKPOINT)
