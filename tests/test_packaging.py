"""What is installed: our four package names belong to us alone, and the wheel is complete."""

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points, packages_distributions, version
from pathlib import Path

import pytest

from tests.support.python import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
ROOMS = sorted({name.split(".")[0] for name in PACKAGES})


@pytest.mark.parametrize("room", ROOMS)
def test_a_generic_name_is_ours_alone(room: str) -> None:
    """`python-daemon` or `mosaicml-streaming` beside us would overwrite files silently."""
    owners = set(packages_distributions().get(room, []))
    assert owners == {"captiond"}, f"{room} also belongs to {owners - {'captiond'}}"


def test_every_package_is_named() -> None:
    """Discovery refuses this layout: a folder that is not named would be missing from the wheel."""
    folders = {path.parent for room in ROOMS for path in (ROOT / room).rglob("__init__.py")}
    assert {".".join(folder.relative_to(ROOT).parts) for folder in folders} == set(PACKAGES)


def test_the_console_script_runs_from_anywhere(tmp_path: Path) -> None:
    (script,) = entry_points(group="console_scripts", name="captiond")
    assert script.value == PROJECT["project"]["scripts"]["captiond"]
    command = [str(Path(sys.executable).parent / "captiond"), "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert version("captiond") in done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy of what is tracked, without asking an index."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in tracked:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            target.write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index"]
    pip += ["--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(pip, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_source_file(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    wanted = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.suffix
        in {".py", ".flac", ".txt", ".html", ".js", ".css", ".svg", ".woff2", ".safetensors"}
    }
    assert wanted <= names, f"missing from the wheel: {sorted(wanted - names)}"
    assert not {name for name in names if name.startswith("tests/")}


def test_a_client_imports_without_torch() -> None:
    """Of the clients' modules none needs what only the daemon has."""
    code = """
import sys
for heavy in ("torch", "transformers", "soxr", "webrtcvad", "sounddevice"):
    sys.modules[heavy] = None
import clients.captioning, clients.demo, clients.file, clients.mic, clients.stream, daemon.cli
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_licence_is_where_it_belongs(wheel: zipfile.ZipFile) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    assert "Apache License" in (ROOT / "LICENSE").read_text()
