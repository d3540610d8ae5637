"""Synthetic training speech: public-domain prose, read by many voices.

A clip is a function of its number and the settings.
"""

import argparse
import csv
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from model.training.synthesis.augmentation import SAMPLE_RATE, Audio, draw, render, resize, stream
from model.training.synthesis.excerpts import LONGEST_S, Excerpt, read_excerpts
from model.training.synthesis.manifest import Clip, Manifest, SynthesisError
from model.training.synthesis.voices import VOICES, Voice, VoiceError

_FORMAT = 1  # raised when the same settings make other clips than before
_ORDER, _SPEAKERS, _AUGMENTATION, _NOISE = range(4)  # purposes of random numbers
# A clip that is too long is read again, faster, to fill this share of the longest.
_REFILLS = (0.8, 0.97)


@dataclass(frozen=True, slots=True)
class Material:
    """Texts, voices and noises of clips. noises: recordings, 16 kHz mono and not empty."""

    excerpts: Sequence[Excerpt]
    voices: Sequence[Voice]
    noises: Sequence[Audio]
    seed: int

    def settings(self) -> dict[str, object]:
        """JSON that differs for material that makes other clips."""
        text = hashlib.sha256("\n".join(excerpt.text for excerpt in self.excerpts).encode())
        noise = hashlib.sha256(b"".join(noise.tobytes() for noise in self.noises))
        return {
            "format": _FORMAT,
            "texts": text.hexdigest(),
            "voices": [voice.name for voice in self.voices],
            "noises": noise.hexdigest() if self.noises else None,
            "seed": self.seed,
        }

    def choose(self, clip: int) -> tuple[Excerpt, Voice]:
        """The clip's text and voice. Every excerpt is read once before any is read by a second voice."""
        epoch, index = divmod(clip, len(self.excerpts))
        order = stream(self.seed, epoch, _ORDER).permutation(len(self.excerpts))
        excerpt = int(order[index])
        # Exponential arrival times: the first voice is drawn by weight, so is the second of the rest, …
        arrivals = stream(self.seed, excerpt, _SPEAKERS).exponential(size=len(self.voices))
        ranks = np.argsort(arrivals / [voice.weight for voice in self.voices])
        return self.excerpts[excerpt], self.voices[ranks[epoch % len(self.voices)]]

    def make(self, clip: int) -> Clip:
        """Clip number `clip`, at most LONGEST_S long. Raises VoiceError."""
        excerpt, voice = self.choose(clip)
        rng = stream(self.seed, clip, _AUGMENTATION)
        augmentation = draw(rng, voice.pitches, recorded=bool(self.noises))
        tempo = augmentation.tempo / augmentation.size
        silence_s = augmentation.lead_s + augmentation.tail_s
        while True:
            audio, rate = voice.speak(
                excerpt.text, tempo=tempo, pitch=augmentation.pitch, seed=clip
            )
            speech = resize(audio, rate, augmentation.size)
            speech_s = len(speech) / SAMPLE_RATE
            if speech_s + silence_s <= LONGEST_S:
                break
            tempo *= speech_s / (rng.uniform(*_REFILLS) * LONGEST_S - silence_s)
        return Clip(
            number=clip,
            audio=render(speech, augmentation, stream(self.seed, clip, _NOISE), self.noises),
            speaker=f"{voice.name}/{augmentation.bucket}",
            transcript=excerpt.text if augmentation.cut is None else "",
            source=f"generated from {excerpt.book}",
        )


def synthesise(
    texts: Sequence[Path],
    out: Path,
    *,
    hours: float,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    noises: Sequence[Path] = (),
    voices: Sequence[Voice] = VOICES,
) -> float:
    """Make clips below `out` until there are `hours` of them; returns the hours of all clips.

    texts: books, see `read_excerpts`. shard: (i, n) makes every n-th clip from the i-th on, up to the n-th
    part of the hours; n such runs may be concurrent, each with its own manifest. noises: recordings to mix
    with speech. Raises SynthesisError, also for an `out` with other settings; VoiceError; ValueError and
    OSError for texts that cannot be read.
    """
    index, shards = shard
    if not 0 <= index < shards:
        raise SynthesisError(f"there is no shard {index}/{shards}: of n, they are 0/n to n-1/n")
    if not hours > 0 or seed < 0:
        raise SynthesisError(f"{hours} hours with seed {seed}: want more than 0, and at least 0")
    material = Material(read_excerpts(texts, seed), voices, [_noise(path) for path in noises], seed)
    if not material.excerpts:
        raise SynthesisError("the texts hold nothing to read aloud: name books in English")
    for voice in voices:
        voice.check()
    name = "manifest.tsv" if shards == 1 else f"manifest-{index}-of-{shards}.tsv"
    try:
        out.mkdir(parents=True, exist_ok=True)
        _check_settings(out, material.settings() | {"shards": shards})
        with Manifest(out / name) as manifest:
            _fill(manifest, material, hours / shards * 3600, shard)
            return manifest.seconds / 3600
    except OSError as error:
        raise SynthesisError(
            f"cannot write {error.filename or out}: {error.strerror}. The clips made so far are "
            "kept: mend that and run the same command to go on"
        ) from error


def train_noises(manifest: Path) -> list[Path]:
    """A manifest's training recordings without speech: rows with use=train and language=none.

    Raises OSError.
    """
    with manifest.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            manifest.parent / row["path"]
            for row in rows
            if row.get("use") == "train" and row.get("language") == "none"
        ]


def _fill(manifest: Manifest, material: Material, seconds: float, shard: tuple[int, int]) -> None:
    from tqdm import tqdm  # noqa: PLC0415  (an extra's)

    index, shards = shard
    clip = index if manifest.last is None else manifest.last + shards
    with tqdm(
        total=round(seconds),
        initial=round(manifest.seconds),
        unit="s",
        unit_scale=True,
        desc=f"speech {index}/{shards}",
        bar_format="{desc}: {n_fmt} of {total_fmt} s, {rate_fmt}, {remaining} left",
        mininterval=1 if sys.stderr.isatty() else 30,
    ) as progress:
        while manifest.seconds < seconds:
            made = material.make(clip)
            manifest.add(made)
            progress.update(made.seconds)
            clip += shards


def _check_settings(out: Path, settings: dict[str, object]) -> None:
    """Write the first run's settings, or compare with them. Raises SynthesisError for others."""
    path = out / "settings.json"
    proposal = out / f"settings.{os.getpid()}.part"
    try:
        proposal.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        os.link(proposal, path)  # atomic, and fails if there is one
    except FileExistsError:
        kept = json.loads(path.read_text(encoding="utf-8"))
        differing = sorted(key for key in settings if settings[key] != kept.get(key))
        if differing:
            raise SynthesisError(
                f"{out} was begun with other {', '.join(differing)} (see {path}): repeat those, "
                "or choose another folder"
            ) from None
    finally:
        proposal.unlink(missing_ok=True)


def _noise(path: Path) -> Audio:
    try:
        data, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.SoundFileError as error:
        raise SynthesisError(f"{path} cannot be read as audio: {error}") from None
    noise = resize(data.mean(axis=1, dtype=np.float32), rate, 1.0)
    if not noise.any():
        raise SynthesisError(f"{path} is silent: leave it out of the noises")
    return noise


def _shard(text: str) -> tuple[int, int]:
    index, _, shards = text.partition("/")
    return int(index), int(shards)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m model.training.synthesis", description=__doc__)
    parser.add_argument("texts", nargs="+", type=Path, help="books: English prose in UTF-8")
    parser.add_argument("--out", type=Path, required=True, help="folder for clips and manifest")
    parser.add_argument("--hours", type=float, required=True, help="of speech, over all shards")
    parser.add_argument("--seed", type=int, default=0, help="another one gives other clips")
    parser.add_argument(
        "--shard", type=_shard, default=(0, 1), help="i/n: make every n-th clip from the i-th on"
    )
    parser.add_argument(
        "--noises", type=Path, help="manifest whose rows use=train, language=none lie under speech"
    )
    given = parser.parse_args(arguments)
    try:
        made = synthesise(
            given.texts,
            given.out,
            hours=given.hours,
            seed=given.seed,
            shard=given.shard,
            noises=train_noises(given.noises) if given.noises else (),
        )
    except (SynthesisError, VoiceError, ValueError, OSError) as error:
        parser.exit(1, f"{error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "stopped; the same command goes on from here\n")
    print(f"{made:.2f} h of speech in {given.out}")  # noqa: T201  (the command's answer)
