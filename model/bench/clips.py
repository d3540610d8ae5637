"""Recordings for benchmarks, read and resampled before any clock starts."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from model.whisper.mel import SAMPLE_RATE

MOST_S = 30
_LISTS = {".txt", ".lst"}


class BenchError(Exception):
    """Unusable input of a benchmark; the message says what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """One utterance. audio: float32 [samples], 16 kHz mono. transcript: the reference, if known."""

    name: str
    audio: NDArray[np.float32]
    transcript: str | None = None

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.audio) / SAMPLE_RATE


def read_clips(
    places: Sequence[Path], references: Path | None = None, limit: int | None = None
) -> list[Clip]:
    """Read at most `limit` recordings, in the order of `places`.

    A place is a recording, a directory (its recordings by name, subfolders included), or a list (.txt,
    .lst: one path a line, relative to the list). references: see `read_references`. Raises BenchError.
    """
    known = {} if references is None else read_references(references)
    paths = [path for place in places for path in _found(place)][:limit]
    if not paths:
        raise BenchError(
            f"no recordings in {', '.join(map(str, places))}: name files, directories or lists of "
            f"{', '.join(sorted(_suffixes()))}"
        )
    return [Clip(path.name, _read(path), known.get(path.resolve())) for path in paths]


def read_references(path: Path) -> dict[Path, str]:
    """Transcripts by absolute path, from tab-separated text.

    The columns are `path` and `transcript` of the header, or the first two without one. Paths are
    relative to the table; empty transcripts are left out. Raises BenchError.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(f"the references {path} cannot be read: {error}") from None
    where, what = 0, 1
    if rows and {"path", "transcript"} <= set(rows[0]):
        where, what = rows[0].index("path"), rows[0].index("transcript")
        rows = rows[1:]
    short = next((n for n, row in enumerate(rows, 1) if len(row) <= max(where, what)), None)
    if short is not None:
        raise BenchError(f"{path}: row {short} has no path and transcript, divided by a tab")
    return {(path.parent / row[where]).resolve(): row[what] for row in rows if row[what].strip()}


def _suffixes() -> set[str]:
    # RAW files do not say their rate.
    return {f".{name.lower()}" for name in soundfile.available_formats()} - {".raw"}


def _found(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(path for path in place.rglob("*") if path.suffix.lower() in _suffixes())
    if not place.is_file():
        raise BenchError(f"{place} is neither a file nor a directory")
    if place.suffix.lower() in _LISTS:
        lines = place.read_text(encoding="utf-8").splitlines()
        return [place.parent / line.strip() for line in lines if line.strip()]
    return [place]


def _read(path: Path) -> NDArray[np.float32]:
    try:
        data, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise BenchError(f"{path} cannot be read as a recording: {error}") from None
    mono = data.mean(axis=1, dtype=np.float32)
    audio = np.asarray(soxr.resample(mono, rate, SAMPLE_RATE), np.float32)
    if len(audio) > MOST_S * SAMPLE_RATE:
        raise BenchError(
            f"{path} is {len(audio) / SAMPLE_RATE:.2f} s long: an utterance is at most {MOST_S} s. "
            "Split it, or leave it out"
        )
    return audio
