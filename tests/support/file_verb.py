"""`captiond file`, called as from the command line, and files for it."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from clients.file import add_arguments, run
from tests.support.standin import Standin

RATE = 16_000


Capture = pytest.CaptureFixture[str]


def caption(server: Standin | str, *words: str | Path) -> int:
    """The verb's exit status."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    url = server if isinstance(server, str) else server.url
    return run(parser.parse_args([*map(str, words), "--url", url]))


def tone(seconds: float, channels: int = 1) -> NDArray[np.int16]:
    """[samples, channels]"""
    count = round(seconds * RATE)
    wave = np.sin(np.arange(count) * 0.1)[:, None] * np.arange(1, channels + 1) * 3000
    return np.asarray(wave, np.int16)


def wav(path: Path, seconds: float = 0.25, channels: int = 1) -> Path:
    soundfile.write(path, tone(seconds, channels), RATE, subtype="PCM_16")
    return path


@contextmanager
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard input is a pipe; the descriptor to write to. The caller closes it."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield writing
