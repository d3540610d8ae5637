"""Environments for other projects' clients: made once, kept in the user's cache, outside of ours.

Their packages contradict ours, so that each has one of its own. Where one cannot be made, for want of a network
or of node, the tests that need it are skipped, and say so.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes import PATIENCE

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "captiond-clients"
INSTALLING = 300  # seconds
SUPPORT = Path(__file__).parent


def python_with(*packages: str) -> str:
    """The interpreter of an environment that has these packages."""
    with _kept("python", packages) as (folder, is_new):
        if is_new:
            venv.create(folder, with_pip=True)
            _installed([f"{folder}/bin/pip", "install", "--quiet", *packages], folder)
    return str(folder / "bin" / "python")


def node_modules(*packages: str) -> Path:
    """A folder in which node finds these packages."""
    if shutil.which("npm") is None:
        pytest.skip("node is not installed")
    with _kept("node", packages) as (folder, is_new):
        if is_new:
            (folder / "package.json").write_text('{"type": "module"}')
            _installed(["npm", "install", "--silent", *packages], folder)
    return folder


async def output_of(*command: str, cwd: Path | None = None) -> Any:
    """What a client prints, as JSON."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


@contextmanager
def _kept(kind: str, packages: tuple[str, ...]) -> Iterator[tuple[Path, bool]]:
    """The environment's folder, and whether it is to be made. Nobody else makes it meanwhile."""
    made_for = " ".join([kind, sys.version, *packages])
    folder = CACHE / f"{kind}-{hashlib.sha256(made_for.encode()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = folder / "complete"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            yield folder, True
            done.touch()
        else:
            yield folder, False


def _installed(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=INSTALLING)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"the client cannot be installed: {error}")
