"""The shared recordings that tests and benchmarks run on. No torch: the tests of streaming need none.

They lie in the folder that the variable TEST_AUDIO names, else in shared/audio beside the checkout.
Tests that need them are skipped where they are absent.
"""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from numpy.typing import NDArray

from streaming.protocol import SAMPLE_RATE

BESIDE = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "audio"
ROOT = Path(os.environ.get("TEST_AUDIO") or BESIDE)
MANIFEST = ROOT / "manifest.tsv"
ABSENT = f"the shared recordings are absent: looked for {MANIFEST} (set TEST_AUDIO)"
# Utterances that captions were once wrong for, one line each in the manifest beside them.
INPUTS = Path(os.environ.get("TEST_INPUTS") or BESIDE.parent / "reference" / "inputs")
needs_inputs = pytest.mark.skipif(
    not (INPUTS / "manifest.tsv").is_file(),
    reason=f"the inputs are absent: looked for {INPUTS} (set TEST_INPUTS)",
)
needs_audio = pytest.mark.skipif(not MANIFEST.is_file(), reason=ABSENT)


@dataclass(frozen=True, slots=True)
class Recording:
    """One row of the manifest."""

    path: Path
    seconds: float
    use: str
    language: str
    speaker: str
    transcript: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    def audio(self) -> NDArray[np.float32]:
        """The whole recording: float32 [samples], 16 kHz mono."""
        return read(self.name)


def read(name: str) -> NDArray[np.float32]:
    """The recording of that path below the folder: float32 [samples], 16 kHz mono."""
    return read_file(ROOT / name)


def read_file(path: Path) -> NDArray[np.float32]:
    """An audio file: float32 [samples], 16 kHz mono."""
    data, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = data.mean(axis=1, dtype=np.float32)
    return np.asarray(soxr.resample(mono, rate, SAMPLE_RATE), np.float32)


def english(under: str = "") -> list[Recording]:
    """The English test recordings that are utterances: of up to 30 s."""
    return [one for one in recordings(language="en", under=under) if one.seconds <= 30]


def recordings(use: str = "test", language: str | None = None, under: str = "") -> list[Recording]:
    """The manifest's rows for one use, in its order; `under` restricts to a path prefix."""
    with MANIFEST.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        every = [
            Recording(
                ROOT / row["path"],
                float(row["seconds"]),
                row["use"],
                row["language"],
                row["speaker"],
                row["transcript"],
            )
            for row in rows
        ]
    return [
        one
        for one in every
        if one.use == use and language in (None, one.language) and one.name.startswith(under)
    ]
