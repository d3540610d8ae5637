"""Python programs in processes of their own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def python(*arguments: str) -> str:
    """What it prints, started in the repository's root; CalledProcessError where it fails."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, encoding="utf-8")
    return done.stdout
