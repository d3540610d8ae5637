"""The arrows between the rooms, and between the rooms within them, read off the source: nothing points upward."""

import ast
import sys
from pathlib import Path

import pytest

from tests.support.architecture import arrows, floors, imports, lengths
from tests.support.python import ROOT

ROOMS = ("clients", "daemon", "model", "streaming")
ALLOWED = {
    # The first two need no more than msgspec, the third PyAV.
    "clients": {"streaming.protocol", "streaming.subtitles", "streaming.containers"},
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
# What each room within a room may import of its neighbours, lowest first.
WITHIN = {
    "model": {
        "flags": set[str](),
        "whisper": set[str](),
        "checkpoints": {"whisper"},
        "drafting": {"checkpoints", "whisper"},
        "engine": {"drafting", "checkpoints", "whisper"},
        "training": {"flags", "engine", "drafting", "checkpoints", "whisper"},
        "bench": {"flags", "engine", "drafting", "checkpoints", "whisper"},
    },
    "daemon": {
        "config": set[str](),
        "net": {"config"},
        "recognition": set[str](),
        "monitoring": {"config", "net", "recognition"},
        "sessions": {"config", "net", "recognition", "monitoring"},
        "files": {"net", "recognition", "monitoring", "sessions"},
        "endpoints": {"net", "monitoring", "sessions", "files"},
        "entrances": {"config", "net", "sessions"},
        "server": {
            "config",
            "net",
            "recognition",
            "monitoring",
            "sessions",
            "files",
            "endpoints",
            "entrances",
        },
        "serve_flags": {"config", "monitoring"},
        "serve": {"config", "net", "monitoring", "server"},
        "cli": set[str](),
        "models": set[str](),
        "protocols": {"config"},
    },
}
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


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


@pytest.mark.parametrize("package", WITHIN)
def test_rooms_within_a_room_point_downward_only(package: str) -> None:
    found = arrows(ROOT, package)
    allowed = WITHIN[package]
    assert {room.partition(".")[2] for room in found} == set(allowed)
    for room, others in found.items():
        upward = {one.partition(".")[2] for one in others} - allowed[room.partition(".")[2]]
        assert not upward, f"{room} may not import {sorted(upward)}"
    assert floors(found) is not None, "arrows run in a circle"


def test_classes_that_much_meets_in_stay_short() -> None:
    names = {"Session", "LiveSession", "Connection", "Daemon", "Engine", "Runner"}
    found = [one for one in lengths(FILES, ast.ClassDef) if one.name in names]
    assert {one.name for one in found} == names
    assert not [one for one in found if one.lines >= 200]


def test_only_the_microphone_client_names_sounddevice() -> None:
    """PortAudio is not on servers."""
    users = {path.name for path in FILES if within("sounddevice", imports(path))}
    assert users <= {"mic.py"}


def test_the_protocol_needs_msgspec_alone() -> None:
    """A client installs without numpy and torch."""
    files = ("protocol", "validation_errors", "settings")
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


def test_subtitles_need_the_protocol_alone() -> None:
    names = imports(ROOT / "streaming" / "subtitles.py")
    modules = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert all(within(name, {"streaming.protocol"}) for name in modules)


def test_tests_are_flat_and_named_after_what_they_test() -> None:
    """One test file for each source file, unique names, and helpers apart."""
    sources = {path.stem for path in FILES if not path.stem.startswith("__")}
    assert len(sources) == len([p for p in FILES if not p.stem.startswith("__")])
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("test_*.py")}
    tests |= {name.removeprefix("bench_") for name in tests}
    assert sources <= tests, f"without a test file: {sorted(sources - tests)}"
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert folders <= {"__pycache__", "benchmarks", "support"}
    loose = {p.name for p in (ROOT / "tests").glob("*.py")} - {"conftest.py"}
    assert all(name.startswith("test_") for name in loose), sorted(loose)
