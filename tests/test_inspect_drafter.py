from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from daemon import cli
from model.checkpoints.load import load
from model.drafting.drafter_files import save_network
from tests.support.lessons import record
from tests.support.tiny_drafters import tiny_parallel
from tests.support.tiny_files import save_transformers

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_transformers(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture
def drafter(model: Path, tmp_path: Path) -> Path:
    """An untrained one, which names its model."""
    path = tmp_path / "d.safetensors"
    target = load(str(model)).fingerprint
    notes = {"model": str(model)}
    save_network(path, tiny_parallel(), target=target, acceptance=[0.5] * 4, notes=notes)
    return path


def test_a_file_is_inspected(drafter: Path, capsys: Capture) -> None:
    assert cli.main(["drafter", "inspect", str(drafter)]) == 0
    assert "2 layers" in capsys.readouterr().out


def test_a_file_is_evaluated_on_audio(drafter: Path, tmp_path: Path, capsys: Capture) -> None:
    """On its own model, unless another is named; what was left out is said."""
    for number in range(6):
        record(tmp_path / "audio" / f"{number}.wav", number, 8000 + 700 * number)
    (tmp_path / "audio" / "x.wav").write_bytes(b"nonsense")
    assert cli.main(["drafter", "evaluate", str(drafter), "--audio", str(tmp_path / "audio")]) == 0
    said = capsys.readouterr().out
    assert "6 recordings, 0.00 h; left out: 1 unreadable" in said
    for name in ("α", "τ", "rounds", "acceptance"):
        assert name in said
    limited = ["--audio", str(tmp_path / "audio"), "--limit", "2"]
    assert cli.main(["drafter", "evaluate", str(drafter), *limited]) == 0
    assert "2 recordings" in capsys.readouterr().out


@pytest.mark.parametrize("noted", ["nonsense", "3", "[]", "{}"])
def test_unreadable_metadata_are_one_sentence(tmp_path: Path, capsys: Capture, noted: str) -> None:
    """Such as those of a file from elsewhere."""
    path = tmp_path / "d.safetensors"
    metadata = {"architecture": noted, "target": "abc", "acceptance": "[]"}
    save_file({"x": torch.zeros(1)}, path, metadata=metadata)
    assert cli.main(["drafter", "inspect", str(path)]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"captiond drafter: {path} is not what it says: its metadata")
    assert len(said.err.splitlines()) == 1
    assert not said.out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["inspect", "/nowhere"], "cannot be read"),
        (["evaluate", "DRAFTER", "--audio", "/nowhere"], "does not exist"),
        (["evaluate", "DRAFTER", "--audio", ".", "--language", "xx"], "does not know the language"),
        (["evaluate", "DRAFTER", "--audio", ".", "--model", "no such model"], "no such model"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    drafter: Path, capsys: Capture, argv: list[str], says: str
) -> None:
    given = [str(drafter) if part == "DRAFTER" else part for part in argv]
    assert cli.main(["drafter", *given]) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if "captiond drafter" in line]
    assert len(errors) == 1
    assert says in errors[0]
