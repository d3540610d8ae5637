import csv
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.training.synthesis.manifest import COLUMNS, Clip, Manifest, SynthesisError
from tests.support.disk import small_files


def clip(number: int, seconds: float = 0.1) -> Clip:
    audio = np.full(round(seconds * 16_000), 0.25, np.float32)
    return Clip(number, audio, "voice/plain", f"Clip number {number}.", "generated from book.txt")


def fill(path: Path, *numbers: int) -> None:
    with Manifest(path) as manifest:
        for number in numbers:
            manifest.add(clip(number))


def test_a_clip_is_a_file_and_a_line(tmp_path: Path) -> None:
    path = tmp_path / "manifest.tsv"
    fill(path, 0, 1234)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert tuple(rows[0]) == COLUMNS
    assert [row["path"] for row in rows] == ["000/00000.flac", "001/01234.flac"]
    assert rows[1]["transcript"] == "Clip number 1234."
    assert (rows[0]["use"], rows[0]["language"], rows[0]["seconds"]) == ("train", "en", "0.10")
    for row in rows:
        info = soundfile.info(tmp_path / row["path"])
        assert (info.samplerate, info.channels, info.format) == (16_000, 1, "FLAC")
        assert info.duration == pytest.approx(0.1)


def test_a_manifest_opened_again_knows_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "manifest.tsv"
    fill(path, 3, 5)
    with Manifest(path) as manifest:
        assert manifest.last == 5
        assert manifest.seconds == pytest.approx(0.2)


@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # written anew each time
)
@given(data=st.data())
def test_where_it_stopped_nothing_is_lost_or_doubled(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "manifest.tsv"
    path.unlink(missing_ok=True)
    fill(path, 0, 1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with Manifest(path) as manifest:
        following = 0 if manifest.last is None else manifest.last + 1
        for number in range(following, 3):
            manifest.add(clip(number))
    assert path.read_bytes() == whole


def test_two_runs_cannot_write_one_manifest(tmp_path: Path) -> None:
    path = tmp_path / "manifest.tsv"
    with Manifest(path), pytest.raises(SynthesisError, match="another run is writing"):
        Manifest(path).__enter__()
    fill(path, 0)


def test_a_line_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.tsv"
    fill(path, 0)
    with path.open("a") as file:
        file.write("recording.wav\tunknown\n")
    with pytest.raises(SynthesisError, match=r"was not written here: 'recording\.wav"):
        fill(path, 1)


def test_a_disk_that_is_full_leaves_no_part_of_a_clip(tmp_path: Path) -> None:
    path = tmp_path / "manifest.tsv"
    fill(path, 0)
    before = path.read_bytes()
    for limit, seconds in [(len(before) + 20, 0.001), (50, 30.0)]:
        with small_files(limit), pytest.raises(OSError, match="Errno 27"), Manifest(path) as full:
            full.add(clip(1, seconds))
        assert path.read_bytes() == before
        assert not list(tmp_path.rglob("*.partial"))
    fill(path, 1)
    assert path.read_bytes().startswith(before)
