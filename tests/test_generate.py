import csv
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile

from model.training.synthesis.augmentation import Audio
from model.training.synthesis.excerpts import LONGEST_S, Excerpt
from model.training.synthesis.generate import Material, main, synthesise, train_noises
from model.training.synthesis.manifest import SynthesisError
from model.training.synthesis.voices import VOICES, Voice
from tests.support.python import ROOT


@dataclass(frozen=True, slots=True)
class Tone(Voice):
    """Stands in for a synthesiser: 70 ms of tone for each letter."""

    def check(self) -> None:
        pass

    def speak(self, text: str, *, tempo: float, pitch: float, seed: int) -> tuple[Audio, int]:
        samples = np.arange(round(len(text) * 0.07 / tempo * 24_000))
        return np.sin(samples * (0.05 * pitch + seed * 1e-6)).astype(np.float32), 24_000


TONES = (
    Tone("flite", "often", 0.8, (0.9, 1.1)),
    Tone("flite", "rarely", 0.15, (0.9, 1.1)),
    Tone("flite", "seldom", 0.05, (0.9, 1.1)),
)


def material(excerpts: int, seed: int = 0) -> Material:
    texts = [Excerpt(f"Number {n} " + "of all those words " * 12, "book") for n in range(excerpts)]
    return Material(texts, TONES, (), seed)


def book(folder: Path) -> Path:
    path = folder / "book.txt"
    path.write_text(
        " ".join(f"It was day {day}, and all the clocks were striking." for day in range(400)),
        encoding="utf-8",
    )
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def rows(folder: Path) -> list[dict[str, str]]:
    return [
        row
        for path in sorted(folder.glob("manifest*.tsv"))
        for row in csv.DictReader(
            path.read_text(encoding="utf-8").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE
        )
    ]


def test_every_excerpt_is_read_once_before_any_is_read_by_another_voice() -> None:
    made = material(40)
    readings = [[made.choose(40 * n + place) for place in range(40)] for n in range(3)]
    for reading in readings:
        assert len({excerpt.text for excerpt, _ in reading}) == 40
    orders = [[excerpt.text for excerpt, _ in reading] for reading in readings]
    assert orders[0] != orders[1]
    speakers: dict[str, set[str]] = {}
    for excerpt, voice in (pair for reading in readings for pair in reading):
        speakers.setdefault(excerpt.text, set()).add(voice.name)
    assert all(len(names) == 3 for names in speakers.values())


def test_voices_speak_as_often_as_their_weights_say() -> None:
    made = material(3000)
    names = [made.choose(clip)[1].variant for clip in range(3000)]
    for voice in TONES:
        assert names.count(voice.variant) / 3000 == pytest.approx(voice.weight, abs=0.03)


def test_hibari_has_four_fifths_of_the_voices() -> None:
    total = sum(voice.weight for voice in VOICES)
    hibari = sum(voice.weight for voice in VOICES if voice.synthesiser == "hibari")
    assert hibari / total == pytest.approx(0.8)


def test_a_clip_is_the_same_whatever_was_made_before() -> None:
    fresh = material(9).make(5)
    used = material(9)
    for clip in (8, 5, 2):
        again = used.make(clip)
        if clip == 5:
            assert np.array_equal(fresh.audio, again.audio)
            assert fresh.speaker == again.speaker
    assert not np.array_equal(fresh.audio, material(9, seed=1).make(5).audio)


def test_no_clip_is_longer_than_allowed_and_those_cut_have_no_transcript() -> None:
    long = Material([Excerpt("word " * 95, "book")], TONES, (), 3)  # 33 s at the voice's pace
    clips = [long.make(clip) for clip in range(16)]
    whole = [clip for clip in clips if clip.transcript]
    assert all(clip.seconds <= LONGEST_S for clip in clips)
    assert all(clip.seconds > 20 for clip in whole)
    assert len(clips) - len(whole) == 3  # as seed 3 draws


def test_clips_are_made_until_there_are_hours_enough(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = synthesise([book(tmp_path)], out, hours=0.03, voices=TONES)
    listed = rows(out)
    assert sum(float(row["seconds"]) for row in listed) / 3600 == pytest.approx(made)
    assert 0.03 <= made < 0.03 + LONGEST_S / 3600
    for row in listed:
        audio, rate = soundfile.read(out / row["path"])
        assert len(audio) / rate == pytest.approx(float(row["seconds"]), abs=0.006)
        assert row["source"] == "generated from book.txt"


def test_a_run_in_pieces_makes_what_one_run_makes(tmp_path: Path) -> None:
    text = book(tmp_path)
    synthesise([text], tmp_path / "once", hours=0.03, voices=TONES)
    for hours in (0.01, 0.02, 0.02, 0.03):
        synthesise([text], tmp_path / "often", hours=hours, voices=TONES)
    assert contents(tmp_path / "once") == contents(tmp_path / "often")


def test_shards_share_out_the_clips_of_one_run(tmp_path: Path) -> None:
    text = book(tmp_path)
    synthesise([text], tmp_path / "one", hours=0.06, voices=TONES)
    for index in range(3):
        synthesise([text], tmp_path / "three", hours=0.06, shard=(index, 3), voices=TONES)
    one = {row["path"]: row for row in rows(tmp_path / "one")}
    three = {row["path"]: row for row in rows(tmp_path / "three")}
    assert len(three) == len(rows(tmp_path / "three"))
    shared = one.keys() & three.keys()
    assert len(shared) > 8
    for path in shared:
        assert one[path] == three[path]
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "three" / path).read_bytes()


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    text = book(tmp_path)
    synthesise([text], tmp_path / "out", hours=0.01, voices=TONES)
    before = contents(tmp_path / "out")
    with pytest.raises(SynthesisError, match="begun with other seed, texts"):
        synthesise([text], tmp_path / "out", hours=0.02, seed=1, voices=TONES)
    with pytest.raises(SynthesisError, match="begun with other shards"):
        synthesise([text], tmp_path / "out", hours=0.02, shard=(0, 2), voices=TONES)
    assert contents(tmp_path / "out") == before
    assert json.loads(before["settings.json"])["seed"] == 0


def test_what_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    text = book(tmp_path)
    out = tmp_path / "out"
    for wrong, message in [
        ({"hours": 0.0}, "hours with seed"),
        ({"hours": float("nan")}, "hours with seed"),
        ({"hours": 1.0, "seed": -1}, "hours with seed"),
        ({"hours": 1.0, "shard": (2, 2)}, "no shard 2/2"),
    ]:
        with pytest.raises(SynthesisError, match=message):
            synthesise([text], out, voices=TONES, **wrong)  # type: ignore[arg-type]  # by name
    text.write_text("CHAPTER I\n", encoding="utf-8")
    with pytest.raises(SynthesisError, match="nothing to read aloud"):
        synthesise([text], out, hours=1.0, voices=TONES)
    assert not out.exists()


def test_an_unwritable_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(SynthesisError, match=r"cannot write .*/out: File exists"):
        synthesise([book(tmp_path)], tmp_path / "out", hours=0.01, voices=TONES)


def test_only_noise_that_is_meant_for_training_is_used(tmp_path: Path) -> None:
    listed = tmp_path / "manifest.tsv"
    listed.write_text(
        "path\tuse\tlanguage\nfan.wav\ttrain\tnone\nrain.wav\ttest\tnone\nbook.wav\ttrain\ten\n"
    )
    assert train_noises(listed) == [tmp_path / "fan.wav"]


def test_recorded_noise_is_part_of_the_settings(tmp_path: Path) -> None:
    fan = tmp_path / "fan.wav"
    soundfile.write(fan, np.random.default_rng(0).normal(0, 0.1, 8000), 8000)
    synthesise([book(tmp_path)], tmp_path / "out", hours=0.01, noises=[fan], voices=TONES)
    with pytest.raises(SynthesisError, match="begun with other noises"):
        synthesise([book(tmp_path)], tmp_path / "out", hours=0.01, voices=TONES)
    soundfile.write(fan, np.zeros(8000), 8000)
    with pytest.raises(SynthesisError, match="silent"):
        synthesise([book(tmp_path)], tmp_path / "other", hours=0.01, noises=[fan], voices=TONES)
    fan.write_text("no audio")
    with pytest.raises(SynthesisError, match=r"fan\.wav cannot be read as audio"):
        synthesise([book(tmp_path)], tmp_path / "other", hours=0.01, noises=[fan], voices=TONES)


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "absent.txt"), "--out", str(tmp_path / "out"), "--hours", "1"])
    assert ended.value.code == 1
    assert "absent.txt" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["book.txt", "--out", "out", "--hours", "1", "--shard", "first"])
    assert ended.value.code == 2
    assert "--shard" in capsys.readouterr().err


# How a process may end, as code that replaces a part of the writing once two clips are there.
DEATHS = {
    "in the clip's file": "os.fsync = lambda file: die() if clips() else None",
    "before the line": "Manifest._write = lambda self, row: die() if clips() else write(self, row)",
    "in the line": """
def _write(self, row):
    if clips():
        self._file.write("\\t".join(row).encode()[:40])
        die()
    write(self, row)
Manifest._write = _write""",
}
PREAMBLE = """
import os, signal, sys
from pathlib import Path
from model.training.synthesis.manifest import Manifest
from tests.test_generate import TONES, synthesise
text, out = map(Path, sys.argv[1:])
write = Manifest._write
clips = lambda: len(list(out.rglob("*.flac"))) > 1
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS)
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, death: str) -> None:
    """With kill -9 at its worst moments, the rest is what an undisturbed run makes."""
    text = book(tmp_path)
    code = f"{PREAMBLE}\n{death}\nsynthesise([text], out, hours=0.03, voices=TONES)"
    killed = subprocess.run(
        [sys.executable, "-B", "-c", code, str(text), str(tmp_path / "killed")],
        check=False,
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    assert killed.returncode == -signal.SIGKILL
    for folder in ("killed", "once"):
        synthesise([text], tmp_path / folder, hours=0.03, voices=TONES)
    assert contents(tmp_path / "killed") == contents(tmp_path / "once")
