"""The arrows between the rooms, read off the source: nothing points upward."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("clients", "daemon", "model", "streaming")
ALLOWED = {
    "clients": {"streaming.protocol", "streaming.subtitles"},  # neither needs more than msgspec
    "daemon": {"streaming", "model"},
    "model": set[str](),
    "streaming": set[str](),
}
FORBIDDEN = {
    "clients": {"torch", "transformers", "soxr", "webrtcvad"},
    "daemon": {"sounddevice", "transformers", "subprocess"},
    "model": {"asyncio", "socket", "threading", "websockets", "time", "sounddevice"},
    "streaming": {
        "torch",
        "transformers",
        "asyncio",
        "socket",
        "subprocess",
        "threading",
        "websockets",
        "time",
    },
}
# Medians of wall time, for start-up and benchmarks.
CLOCKS = {"model/whisper/measure.py": {"time"}}
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at its head or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: absolute imports only"
            assert node.module is not None
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    others = set(ROOMS) - {room}
    forbidden = FORBIDDEN[room] - CLOCKS.get(str(path.relative_to(ROOT)), set())
    for name in imports(path):
        if within(name, others) and name != "streaming":
            assert within(name, ALLOWED[room]), f"{room} may not import {name}"
        assert not within(name, forbidden), f"{room} may not import {name}"


def test_only_the_microphone_client_names_sounddevice() -> None:
    """PortAudio is not on servers."""
    users = {path.name for path in FILES if within("sounddevice", imports(path))}
    assert users <= {"mic.py"}


def test_the_protocol_needs_msgspec_alone() -> None:
    """A client installs without numpy and torch."""
    files = ("protocol", "complaints", "settings")
    names = set[str]().union(*(imports(ROOT / "streaming" / f"{name}.py") for name in files))
    ours = {"streaming.validation_errors", "streaming.settings"}
    roots = {name.split(".")[0] for name in names if not within(name, ours)}
    assert roots <= {
        "msgspec",
        "typing",
        "types",
        "math",
        "json",
        "sys",
        "struct",
        "difflib",
        "collections",
        "dataclasses",
    }


def test_cues_need_the_protocol_alone() -> None:
    names = imports(ROOT / "streaming" / "cues.py")
    modules = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert all(within(name, {"streaming.protocol"}) for name in modules)


def test_tests_are_flat_and_named_after_what_they_test() -> None:
    """One test file for each source file, no folders, unique names."""
    sources = {path.stem for path in FILES if not path.stem.startswith("__")}
    assert len(sources) == len([p for p in FILES if not p.stem.startswith("__")])
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("test_*.py")}
    assert sources <= tests, f"without a test file: {sorted(sources - tests)}"
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert folders <= {"__pycache__"}
