"""Environments of their own for the clients of other projects: made once, and kept in the user's cache.

Their requirements contradict each other's and captiond's. Where pip cannot install, tests are skipped.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "captiond-tests/venvs"
PATIENCE = 600.0  # seconds for pip


def python_of(name: str, requirements: tuple[str, ...], *, alone: tuple[str, ...] = ()) -> Path:
    """The interpreter of the environment `name`. requirements: pinned; alone: without what they require."""
    text = "\n".join([sys.version, *requirements, *alone])
    folder = CACHE / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    with _locked(folder.with_suffix(".lock")):
        if not (folder / "complete").exists():
            try:
                _make(folder, python, requirements, alone)
            except subprocess.SubprocessError as error:
                shutil.rmtree(folder, ignore_errors=True)
                said = getattr(error, "stderr", None) or str(error)
                pytest.skip(f"pip cannot install {name}: {said.strip().splitlines()[-1]}")
            (folder / "complete").touch()
    return python


def _make(folder: Path, python: Path, required: tuple[str, ...], alone: tuple[str, ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(folder))
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*pip, *required)
    if alone:
        _run(*pip, "--no-deps", *alone)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """While this process alone may change what lies beside `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
