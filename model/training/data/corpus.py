"""Training audio: recordings in manifests, directories, lists and datasets, joined to passages."""

import csv
import hashlib
import io
import logging
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from model.whisper.mel import SAMPLE_RATE

MOST_SECONDS = 30.0
SPEEDS = (0.9, 1.0, 1.1)
_GAINS = (-20.0, 6.0)  # dB
_LISTS = {".txt", ".lst"}
_LIBRISPEECH = re.compile(r"(\d+)-\d+-\d+")
_SUFFIXES = {f".{name.lower()}" for name in soundfile.available_formats()} - {".raw"} | {".opus"}
_SPEAKERS = ("speaker_id", "speaker", "client_id")  # columns of datasets

logger = logging.getLogger(__name__)


class CorpusError(Exception):
    """A place without usable audio; the message says what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """The audio in one row of a table of Hugging Face's `datasets`, read on demand."""

    table: Any
    row: int

    def file(self) -> Path | io.BytesIO:
        """The bytes in the table, or the file that it names, for soundfile."""
        audio = self.table[self.row]["audio"]
        return Path(audio["path"]) if audio["bytes"] is None else io.BytesIO(audio["bytes"])


@dataclass(frozen=True, slots=True)
class Recording:
    """One audio file, or one row of a dataset.

    origin: its name in error messages. seconds: by its header or manifest; NaN for a file without audio.
    speaker: training and validation share none.
    """

    origin: str
    seconds: float
    speaker: str
    licence: str
    source: str
    content: Path | Cell

    def read(self) -> NDArray[np.float32]:
        """[samples] at 16 kHz, mono. Raises CorpusError for a file without audio."""
        file = self.content.file() if isinstance(self.content, Cell) else self.content
        try:
            data, rate = soundfile.read(file, dtype="float32", always_2d=True)
        except (OSError, soundfile.SoundFileError) as error:
            raise CorpusError(f"{self.origin} cannot be read as audio: {error}") from None
        mono = data.mean(axis=1, dtype=np.float32)
        if not len(mono) or not np.isfinite(mono).all():
            raise CorpusError(f"{self.origin} holds no samples, or some that are not finite")
        return np.asarray(soxr.resample(mono, rate, SAMPLE_RATE), np.float32)


@dataclass(frozen=True, slots=True)
class Passage:
    """Consecutive recordings of one speaker: one input of the target.

    speed: factor on tempo and pitch alike. gain: in dB, limited to full scale.
    """

    parts: tuple[Recording, ...]
    speed: float = 1.0
    gain: float = 0.0

    @property
    def seconds(self) -> float:
        """Duration after the change of speed."""
        return sum(part.seconds for part in self.parts) / self.speed

    def read(self) -> NDArray[np.float32]:
        """[samples] at 16 kHz, at most 30 s of them. Raises CorpusError."""
        audio = np.concatenate([part.read() for part in self.parts])
        if self.speed != 1.0:
            audio = np.asarray(soxr.resample(audio, SAMPLE_RATE * self.speed, SAMPLE_RATE))
        if self.gain:
            loudest = max(float(np.abs(audio).max()), 1e-9)
            audio = audio * np.float32(min(10 ** (self.gain / 20), 1 / loudest))
        return audio[: int(MOST_SECONDS * SAMPLE_RATE)]


def find(
    places: Sequence[Path],
    *,
    language: str = "en",
    use: str = "train",
    excluded: Counter[str] | None = None,
) -> list[Recording]:
    """Every recording of up to 30 s in `places`, in a fixed order.

    A place is a manifest (tab-separated, with a header that names at least `path`; rows whose columns
    `use` and `language` have other values are skipped), a directory that holds `manifest*.tsv`, a
    directory of audio files (LibriSpeech's file names give the speakers, else folder names do), a list
    (.txt, .lst: a path a line), or a dataset that Hugging Face's `datasets` saved to disk (splits whose
    names begin with `use`). Recordings left out are logged, and counted by reason in `excluded`. Raises
    CorpusError.
    """
    usable, left_out = [], Counter[str]()
    for place in places:
        for recording in _in_place(place, language, use):
            if math.isnan(recording.seconds):
                logger.warning("left out: %s cannot be read as audio", recording.origin)
                left_out["unreadable"] += 1
            elif recording.seconds > MOST_SECONDS:
                left_out[f"longer than {MOST_SECONDS:.0f} s"] += 1
            else:
                usable.append(recording)
    if excluded is not None:
        excluded.update(left_out)
    if not usable:
        reasons = "".join(f"; {count} {reason}" for reason, count in left_out.items())
        raise CorpusError(
            f"no recordings of up to {MOST_SECONDS:.0f} s in {', '.join(map(str, places))}{reasons}"
        )
    return usable


def join(recordings: Iterable[Recording], *, seed: int, short_share: float = 0.25) -> list[Passage]:
    """Passages of 15 to 28 s, and a share of shorter ones, each of one speaker.

    Distilling a passage costs the encoder's full window whatever its length: joined recordings use it
    best. The order is random, so that any part of a run is a fair sample.
    """
    source = random.Random(seed)  # noqa: S311  (no secret depends on it)
    passages = []
    ordered = sorted(recordings, key=lambda recording: (recording.source, recording.speaker))
    for _, group in groupby(ordered, key=lambda recording: (recording.source, recording.speaker)):
        parts: list[Recording] = []
        length = _length(source, short_share)
        for recording in group:
            total = sum(part.seconds for part in parts) + recording.seconds
            if parts and total > length:
                passages.append(Passage(tuple(parts)))
                parts, length = [], _length(source, short_share)
            parts.append(recording)
        passages.append(Passage(tuple(parts)))
    source.shuffle(passages)
    return passages


def listing(passages: Iterable[Passage]) -> str:
    """SHA-256 of the passages' recordings: identifies the list in a cache's metadata."""
    digest = hashlib.sha256()
    for passage in passages:
        digest.update("\t".join(part.origin for part in passage.parts).encode() + b"\n")
    return digest.hexdigest()


def perturb(passages: Sequence[Passage], seed: int) -> list[Passage]:
    """Each passage at a random speed and level, a function of seed and index; none exceeds 30 s."""
    changed = []
    for number, passage in enumerate(passages):
        source = random.Random(f"{seed} {number}")  # noqa: S311  (no secret depends on it)
        speed, gain = source.choice(SPEEDS), source.uniform(*_GAINS)
        if passage.seconds / speed > MOST_SECONDS:
            speed = 1.0
        changed.append(replace(passage, speed=speed, gain=gain))
    return changed


def _length(source: random.Random, short_share: float) -> float:
    return source.uniform(3, 15) if source.random() < short_share else source.uniform(15, 28)


def _in_place(place: Path, language: str, use: str) -> Iterator[Recording]:
    if place.is_file() and place.suffix.lower() == ".tsv":
        return _in_manifest(place, language, use)
    if place.is_file() and place.suffix.lower() in _LISTS:
        lines = _text(place).splitlines()
        named = (place.parent / line.strip() for line in lines if line.strip())
        return _in_files(named, place.stem)
    if not place.is_dir():
        what = "is no manifest (.tsv), list (.txt, .lst) or directory"
        raise CorpusError(f"{place} {what if place.exists() else 'does not exist'}")
    if manifests := sorted(place.glob("manifest*.tsv")):
        return (found for path in manifests for found in _in_manifest(path, language, use))
    if (place / "dataset_info.json").is_file() or (place / "dataset_dict.json").is_file():
        return _in_dataset(place, use)
    audio = (path for path in sorted(place.rglob("*")) if path.suffix.lower() in _SUFFIXES)
    return _in_files(audio, place.resolve().name)


def _in_manifest(path: Path, language: str, use: str) -> Iterator[Recording]:
    lines = io.StringIO(_text(path), newline="")
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    if "path" not in (rows.fieldnames or ()):
        raise CorpusError(f"{path} has no header with a column `path`")
    for row in rows:
        if row.get("use", use) != use or row.get("language", language) != language:
            continue
        audio = path.parent / row["path"]
        yield Recording(
            origin=row["path"],
            seconds=_stated(row.get("seconds"), path, rows.line_num) or _seconds(audio),
            speaker=row.get("speaker") or audio.parent.name,
            licence=row.get("licence") or "not stated",
            source=(row.get("source") or path.parent.name).partition(":")[0],
            content=audio,
        )


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is no UTF-8 text: {error}") from None
    if "\0" in text:
        raise CorpusError(f"{path} is no text: it holds a byte of value 0")
    return text


def _stated(seconds: str | None, path: Path, line: int) -> float | None:
    try:
        return float(seconds) if seconds else None
    except ValueError:
        raise CorpusError(f"{path}, line {line}: {seconds!r} is no number of seconds") from None


def _in_files(paths: Iterable[Path], source: str) -> Iterator[Recording]:
    for path in paths:
        named = _LIBRISPEECH.fullmatch(path.stem)
        yield Recording(
            origin=str(path),
            seconds=_seconds(path),
            speaker=named[1] if named else path.parent.name,
            licence="not stated",
            source="librispeech" if named else source,
            content=path,
        )


def _in_dataset(place: Path, use: str) -> Iterator[Recording]:
    from datasets import Audio, DatasetDict, load_from_disk  # noqa: PLC0415  (an extra's, and slow)

    loaded = load_from_disk(str(place))
    splits = loaded if isinstance(loaded, DatasetDict) else {use: loaded}
    if not (wanted := [name for name in splits if name.startswith(use)]):
        raise CorpusError(f"the dataset {place} has no split {use}*, but {', '.join(splits)}")
    for name in wanted:
        if "audio" not in splits[name].column_names:
            raise CorpusError(f"the dataset {place} has no column `audio`")
        table = splits[name].cast_column("audio", Audio(decode=False))
        speakers = next((column for column in _SPEAKERS if column in table.column_names), None)
        for row in range(len(table)):
            cell = Cell(table, row)
            yield Recording(
                origin=f"{place.name}/{name}/{row}",
                seconds=_seconds(cell.file()),
                speaker=f"{name}/{row}" if speakers is None else str(table[row][speakers]),
                licence=table.info.license or "not stated",
                source=place.name,
                content=cell,
            )


def _seconds(audio: Path | io.BytesIO) -> float:
    """Duration by the header; NaN for a file without audio."""
    try:
        return float(soundfile.info(audio).duration)
    except (OSError, soundfile.SoundFileError):
        return math.nan
