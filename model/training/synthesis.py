"""Synthetic training speech: public-domain prose, read by many voices, as FLAC and a manifest.

A clip depends on its number and the settings alone; a run that was ended in any way goes on after
the last clip that its manifest names.
"""

import argparse
import errno
import fcntl
import hashlib
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import soundfile

from model.training.passages import LONGEST_S, Passage, read_passages
from model.training.variation import SAMPLE_RATE, Audio, draw, render, resize, stream
from model.training.voices import VOICES, Voice, VoiceError, check_voices

COLUMNS = ("path", "seconds", "use", "language", "speaker", "transcript", "licence", "source")
_FORMAT = 1  # raised when the same settings make other clips than before
_PER_FOLDER = 1000
_ORDER, _SPEAKERS, _VARIATION, _NOISE = range(4)  # purposes of random numbers
_LICENCE = "public-domain text, generated speech"


class SynthesisError(Exception):
    """Something that stops the making of clips; the message says what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """What one clip's file and its line of the manifest say.

    audio: float32 [samples], 16 kHz mono in [-1, 1]. transcript: empty for a clip that ends within
    its speech, since nobody knows how far it goes.
    """

    number: int
    audio: Audio
    speaker: str
    transcript: str
    source: str

    @property
    def name(self) -> str:
        """Where it lies, as seen from the manifest."""
        return f"{self.number // _PER_FOLDER:03}/{self.number:05}.flac"

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.audio) / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Corpus:
    """What clips are made of: passages of prose and recordings of noise (16 kHz mono)."""

    passages: Sequence[Passage]
    recordings: Sequence[Audio]
    seed: int

    def digest(self) -> str:
        """Tells apart corpora that would make other clips."""
        parts = hashlib.sha256("\n".join(passage.text for passage in self.passages).encode())
        for recording in self.recordings:
            parts.update(recording.tobytes())
        return parts.hexdigest()

    def passage(self, clip: int) -> tuple[Passage, Voice]:
        """Each passage is read once, in an order of its own, before any is read by another voice."""
        reading, place = divmod(clip, len(self.passages))
        order = stream(self.seed, reading, _ORDER).permutation(len(self.passages))
        passage = int(order[place])
        # An exponential race: the first of each order is drawn by weight, so is the second, …
        race = stream(self.seed, passage, _SPEAKERS).exponential(size=len(VOICES))
        ranks = np.argsort(race / [voice.weight for voice in VOICES])
        return self.passages[passage], VOICES[ranks[reading % len(VOICES)]]

    def make(self, clip: int) -> Clip:
        """Clip number `clip`. Raises VoiceError."""
        passage, voice = self.passage(clip)
        rng = stream(self.seed, clip, _VARIATION)
        variation = draw(rng, voice.pitches, recorded=bool(self.recordings))
        pace, silence_s = variation.pace / variation.size, variation.lead_s + variation.tail_s
        while True:
            audio, rate = voice.speak(passage.text, pace=pace, pitch=variation.pitch, seed=clip)
            speech = resize(audio, rate, variation.size)
            long_s = len(speech) / SAMPLE_RATE
            if long_s + silence_s <= LONGEST_S:
                break
            pace *= long_s / (rng.uniform(0.8, 0.97) * LONGEST_S - silence_s)
        heard = render(speech, variation, stream(self.seed, clip, _NOISE), self.recordings)
        return Clip(
            number=clip,
            audio=heard,
            speaker=f"{voice.name}/{variation.bucket}",
            transcript=passage.text if variation.cut is None else "",
            source=f"generated from {passage.book}",
        )


def synthesise(
    texts: Sequence[Path],
    out: Path,
    *,
    hours: float,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    noises: Sequence[Path] = (),
) -> float:
    """Make clips below `out` until there are `hours` of them; returns the hours there are.

    texts: books, see `read_passages`. shard: (i, n) makes every n-th clip from the i-th on, up to
    the n-th part of the hours; n such runs may go on at once and write a manifest each. noises:
    recordings to lay under speech. Raises SynthesisError, also when `out` was begun with other
    settings; VoiceError; OSError for texts and noises that cannot be read.
    """
    index, shards = shard
    if not 0 <= index < shards or hours <= 0:
        raise SynthesisError(f"shard {index}/{shards} of {hours} h: want 0 <= i < n and hours > 0")
    corpus = Corpus(read_passages(texts, seed), [_read(path) for path in noises], seed)
    if not corpus.passages:
        raise SynthesisError("the texts hold no passage that could be read: name books in English")
    check_voices()
    name = "manifest.tsv" if shards == 1 else f"manifest-{index}-of-{shards}.tsv"
    try:
        out.mkdir(parents=True, exist_ok=True)
        _settle(out, {"format": _FORMAT, "shards": shards, "corpus": corpus.digest(), "seed": seed})
        with _Manifest(out / name) as manifest:
            _fill(manifest, corpus, hours / shards * 3600, shard)
            return manifest.seconds / 3600
    except OSError as error:
        raise SynthesisError(
            f"cannot write to {error.filename or out}: {error.strerror}. Clips made so far are "
            "kept; put that right and run the same command to go on"
        ) from error


def _fill(manifest: "_Manifest", corpus: Corpus, seconds: float, shard: tuple[int, int]) -> None:
    from tqdm import tqdm  # noqa: PLC0415 - only training needs it

    index, shards = shard
    clip = index if manifest.last is None else manifest.last + shards
    with tqdm(
        total=round(seconds),
        initial=round(manifest.seconds),
        unit="s",
        desc=f"speech {index}/{shards}",
        mininterval=1 if sys.stderr.isatty() else 30,
        bar_format="{desc}: {n_fmt} of {total_fmt} s, {rate_fmt}, {remaining} left",
        unit_scale=True,
    ) as progress:
        while manifest.seconds < seconds:
            made = corpus.make(clip)
            manifest.add(made)
            progress.update(made.seconds)
            clip += shards


class _Manifest:
    """The clips of one shard, in order. Each clip's file is whole before its line is begun."""

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
        self._resume()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, clip: Clip) -> None:
        """Write the clip's file, then its line. Raises OSError."""
        path = self._path.parent / clip.name
        path.parent.mkdir(exist_ok=True)
        encoded = io.BytesIO()
        soundfile.write(encoded, clip.audio, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
        partial = path.with_suffix(".part")
        with partial.open("wb") as file:
            file.write(encoded.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        seconds = f"{clip.seconds:.2f}"
        said = (clip.speaker, clip.transcript, _LICENCE, clip.source)
        self._write((clip.name, seconds, "train", "en", *said))
        self._count(clip.name, seconds)

    def _resume(self) -> None:
        """Drop a line that was not finished; count the others."""
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            self._file.truncate(sum(map(len, lines[:-1])))
            del lines[-1]
        if not lines:
            self._write(COLUMNS)
        for line in lines[1:]:
            name, seconds, *_ = line.decode().split("\t")
            self._count(name, seconds)

    def _write(self, row: Sequence[str]) -> None:
        line = ("\t".join(row) + "\n").encode()
        written = self._file.write(line)
        if written != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def _count(self, name: str, seconds: str) -> None:
        self.last = int(Path(name).stem)
        self.seconds += float(seconds)


def _settle(out: Path, settings: dict[str, object]) -> None:
    """The first run's settings hold for all: other ones would give numbers to other clips."""
    path = out / "settings.json"
    proposal = out / f"settings.{os.getpid()}.part"
    proposal.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    try:
        os.link(proposal, path)
    except FileExistsError:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept != settings:
            raise SynthesisError(
                f"{out} was begun with other settings (format, shards, texts, noises or seed: see "
                f"{path}): repeat those, or choose another folder"
            ) from None
    finally:
        proposal.unlink()


def _read(path: Path) -> Audio:
    data, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return resize(data.mean(axis=1, dtype=np.float32), rate, 1.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m model.training.synthesis", description=__doc__)
    parser.add_argument("texts", nargs="+", type=Path, help="books as UTF-8 text")
    parser.add_argument("--out", type=Path, required=True, help="folder for clips and manifest")
    parser.add_argument("--hours", type=float, required=True, help="of speech, over all shards")
    parser.add_argument("--seed", type=int, default=0, help="other clips from the same texts")
    parser.add_argument("--shard", default="0/1", help="i/n: make every n-th clip from the i-th on")
    parser.add_argument("--noise", nargs="*", type=Path, default=[], help="recordings of noise")
    given = parser.parse_args(arguments)
    index, _, shards = given.shard.partition("/")
    try:
        made = synthesise(
            given.texts,
            given.out,
            hours=given.hours,
            seed=given.seed,
            shard=(int(index), int(shards)),
            noises=given.noise,
        )
    except (SynthesisError, VoiceError, ValueError, OSError) as error:
        parser.exit(1, f"{error}\n")
    print(f"{made:.2f} h of speech in {given.out}")  # noqa: T201 - the command's answer
    return 0


if __name__ == "__main__":
    sys.exit(main())
