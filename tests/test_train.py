import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from daemon import cli
from model.checkpoints.load import load
from model.drafting.drafter_files import load_drafter, read_metadata
from model.drafting.speech_draft import SpeechDraft
from model.training import train, trainer
from model.training.data import cache
from model.training.data.corpus import Passage
from model.training.student import learning_rate
from tests.support.lessons import record
from tests.support.tiny_files import save_transformers

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model on disk."""
    return save_transformers(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty recordings of ten speakers in LibriSpeech's layout, each as long as the tiny window."""
    folder = tmp_path_factory.mktemp("data") / "train-tiny"
    for number in range(30):
        path = folder / f"{number % 10}" / "7" / f"{number % 10}-7-{number:04d}.flac"
        record(path, number, 8000 + 700 * (number % 24))
    return folder


@pytest.fixture(autouse=True)
def _no_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model hears 2 s, so that nothing may be joined."""
    monkeypatch.setattr(train, "join", lambda found, seed: [Passage((one,)) for one in found])


def command(out: Path, *more: str) -> list[str]:
    base = ["train", "--out", str(out), "--layers", "0,1", "--steps", "4", "--batch", "2"]
    return [*base, "--block", "4", "--coverage", "0.9", *more]


def test_from_audio_to_drafter(model: Path, speech: Path, tmp_path: Path, capsys: Capture) -> None:
    """The file says what it was made of, and is read again; the same command has no more to do."""
    argv = command(tmp_path, "--data", str(speech), "--model", str(model), "--licence", "CC BY 4.0")
    assert cli.main(argv) == 0
    said = capsys.readouterr()
    assert "30 recordings, 30 passages" in said.err
    assert "librispeech" in said.out
    path = tmp_path / "small.safetensors"
    facts = read_metadata(path)
    assert facts["data_licences"] == "CC BY 4.0"
    assert facts["model"] == "small"
    assert json.loads(facts["recipe"])["steps"] == 4
    trained = load_drafter(path, load(str(model)))
    assert trained.network.architecture.block == len(trained.acceptance) == 4
    assert (tmp_path / "curve.svg").exists()
    before, score = load_file(path), facts["tau"]
    assert cli.main(argv) == 0
    after = load_file(path)
    assert all((before[name] == after[name]).all() for name in before)
    assert read_metadata(path)["tau"] == score


def test_a_cache_serves_other_recipes(model: Path, speech: Path, tmp_path: Path) -> None:
    """Without --data it is taken as it is; left-out files are remembered with it."""
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "x.flac").write_bytes(b"nonsense")
    data = ("--data", str(speech), str(bad), "--cache", str(tmp_path / "shared"))
    name = ("--model", str(model))
    assert cli.main(command(tmp_path / "one", *data, *name, "--perturb")) == 0
    assert cache.read_metadata(tmp_path / "shared").perturb == 0
    assert cache.excluded(tmp_path / "shared")["unreadable"] == 1
    caches = ("--cache", str(tmp_path / "shared"))
    assert (
        cli.main(command(tmp_path / "two", *caches, *name, "--soft", "0.5", "--anchors", "3")) == 0
    )
    facts = read_metadata(tmp_path / "two" / "small.safetensors")
    assert json.loads(facts["excluded"])["unreadable"] == 1
    assert not (tmp_path / "two" / "cache").exists()


def test_a_speech_draft_is_trained_on_demand(model: Path, speech: Path, tmp_path: Path) -> None:
    """It begins as one of the model's blocks, by default as the last."""
    argv = ["train", "--out", str(tmp_path), "--data", str(speech), "--model", str(model)]
    assert cli.main([*argv, "--kind", "speech", "--steps", "2", "--block", "4"]) == 0
    path = tmp_path / "small.safetensors"
    assert json.loads(read_metadata(path)["recipe"])["layers"] == [1]
    assert isinstance(load_drafter(path, load(str(model))).network, SpeechDraft)


def test_a_signal_is_obeyed_after_the_step(
    model: Path, speech: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A checkpoint is written, and the same command goes on from it."""
    argv = command(tmp_path, "--data", str(speech), "--model", str(model))

    def interrupted(*step: Any) -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        return learning_rate(*step)

    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patched:
        patched.setattr(trainer, "learning_rate", interrupted)
        assert cli.main(argv) == 130
    assert signal.getsignal(signal.SIGTERM) is before
    assert "stopped after 1 of 4 steps; the same command goes on" in capsys.readouterr().err
    assert cli.main(argv) == 0
    assert read_metadata(tmp_path / "small.safetensors")["model"] == "small"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--data", "/nowhere"], "/nowhere does not exist"),
        ([], "name audio with --data"),
        (["--kind", "speech"], "a Speech-Draft begins as one of the model's blocks"),
        (["--layers", "1,2"], "has the decoder blocks 0 to 1, not 1, 2"),
        (["--data", ".", "--language", "xx"], "does not know the language xx"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    model: Path,
    speech: Path,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(speech)
    assert cli.main(command(tmp_path, "--model", str(model), *more)) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if "captiond train:" in line]
    assert len(errors) == 1
    assert says in errors[0]
