"""Node packages of other projects' clients: installed once, and kept in the user's cache beside the Python ones."""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.client_venv import CACHE, PATIENCE


def node_modules(*packages: str) -> Path:
    """A folder in which node finds these packages, pinned. Skips where there is no node, or no network."""
    if shutil.which("npm") is None:
        pytest.skip("node is not installed")
    made_for = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:12]
    folder = CACHE.parent / "node" / made_for
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "package.json").write_text('{"type": "module"}')
            command = ["npm", "install", "--silent", *packages]
            try:
                subprocess.run(
                    command, cwd=folder, check=True, capture_output=True, timeout=PATIENCE
                )
            except subprocess.SubprocessError as error:
                pytest.skip(f"npm cannot install {' '.join(packages)}: {error}")
            (folder / "complete").touch()
    return folder
