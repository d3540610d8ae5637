"""The verb `models`: its table, over the true catalogue and over a scripted one."""

import importlib.util
from pathlib import Path

import huggingface_hub.constants
import pytest

from daemon import cli, models
from model.checkpoints import load
from model.checkpoints.load import PACKAGES, SHORT_NAMES

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the Hub's cache."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def table(capsys: Capture) -> list[list[str]]:
    """The rows printed, heading included, each as name, here and source."""
    assert cli.main(["models"]) == 0
    *rows, hint = capsys.readouterr().out.splitlines()
    assert "Hub id" in hint
    return [row.split(maxsplit=2) for row in rows]


def installed(name: str) -> list[str]:
    """The row of a model that comes as a package, in an environment such as this one."""
    package = PACKAGES[name]
    if importlib.util.find_spec(package.module) is None:
        return [name, "no", f"pip install {' '.join(package.requirements)}"]
    return [name, "yes", f"package {package.module}"]


def test_every_short_name_has_its_row(hub_cache: Path, capsys: Capture) -> None:
    """Without a cache, models come from packages and from the Hub."""
    heading, *rows = table(capsys)
    assert heading == ["model", "here", "source"]
    assert rows == [
        installed(name) if name in PACKAGES else [name, "no", f"Hub: openai/whisper-{name}"]
        for name in SHORT_NAMES
    ]


def test_what_the_cache_holds_is_here(hub_cache: Path, capsys: Capture) -> None:
    """Either publisher's files will do; they go before the package and the Hub."""
    for repository in ("openai--whisper-small", "Systran--faster-whisper-base"):
        home = hub_cache / f"models--{repository}"
        (home / "refs").mkdir(parents=True)
        (home / "refs" / "main").write_text("abc")
        (home / "snapshots" / "abc").mkdir(parents=True)
    small = hub_cache / "models--openai--whisper-small" / "snapshots" / "abc"
    base = hub_cache / "models--Systran--faster-whisper-base" / "snapshots" / "abc"
    (small / "model.safetensors").touch()
    (base / "model.bin").touch()
    rows = table(capsys)
    assert ["small", "yes", str(small)] in rows
    assert ["base", "yes", str(base)] in rows


def test_the_columns_are_aligned(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    rows = [
        load.Source("base", "package x", available=True),
        load.Source("a-longer-name", "Hub", available=False),
    ]
    monkeypatch.setattr(models, "catalogue", lambda: rows)
    assert cli.main(["models"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "model          here  source",
        "base           yes   package x",
        "a-longer-name  no    Hub",
    ]
