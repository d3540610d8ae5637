"""Clips on disk: FLAC files, and a manifest that lists each of them once it is whole.

After any end of a run, kill -9 and a full disk included, the next one continues after the last whole line.
"""

import fcntl
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import soundfile

from model.training.data.files import replacing
from model.training.synthesis.augmentation import SAMPLE_RATE, Audio

COLUMNS = ("path", "seconds", "use", "language", "speaker", "transcript", "licence", "source")
_PER_FOLDER = 1000
_LICENCE = "public-domain text, generated speech"


class SynthesisError(Exception):
    """An error that stops the synthesis; the message says what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """One clip's file and line of the manifest.

    audio: float32 [samples], 16 kHz mono in [-1, 1]. transcript: empty for a clip that is cut within its
    speech, as the last word is not known.
    """

    number: int
    audio: Audio
    speaker: str
    transcript: str
    source: str

    @property
    def name(self) -> str:
        """The file's path, relative to the manifest."""
        return f"{self.number // _PER_FOLDER:03}/{self.number:05}.flac"

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.audio) / SAMPLE_RATE


class Manifest:
    """The clips of one shard, in order. A clip's file is whole before its line is begun."""

    last: int | None = None  # number of the last clip
    seconds = 0.0  # of all clips

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._file = self._path.open("a+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise SynthesisError(f"another run is writing {self._path}: wait for it") from None
        try:
            self._resume()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, clip: Clip) -> None:
        """Write the clip's file, then its line.

        Raises OSError; then there is no line, and at most a whole file, which the next run replaces.
        """
        path = self._path.parent / clip.name
        path.parent.mkdir(exist_ok=True)
        encoded = io.BytesIO()
        soundfile.write(encoded, clip.audio, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
        with replacing(path) as temporary:
            temporary.write_bytes(encoded.getbuffer())
        seconds = f"{clip.seconds:.2f}"
        columns = (clip.speaker, clip.transcript, _LICENCE, clip.source)
        self._write((clip.name, seconds, "train", "en", *columns))
        self._count(clip.name, seconds)

    def _resume(self) -> None:
        """Remove an unfinished line; count the others."""
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            self._file.truncate(sum(map(len, lines[:-1])))
            del lines[-1]
        if not lines:
            self._write(COLUMNS)
        for line in lines[1:]:
            try:
                name, seconds, *_ = line.decode().split("\t")
                self._count(name, seconds)
            except ValueError:
                raise SynthesisError(
                    f"{self._path} holds a line that was not written here: {line.decode(errors='replace')!r}"
                ) from None

    def _write(self, row: Sequence[str]) -> None:
        line = ("\t".join(row) + "\n").encode()
        end = self._file.seek(0, os.SEEK_END)
        try:
            while line:  # a full disk takes a part
                line = line[self._file.write(line) :]
        except OSError:
            self._file.truncate(end)
            raise

    def _count(self, name: str, seconds: str) -> None:
        self.last = int(Path(name).stem)
        self.seconds += float(seconds)
