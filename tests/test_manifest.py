import csv
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.training.synthesis.manifest import COLUMNS, Clip, Manifest, SynthesisError

ROOT = Path(__file__).resolve().parent.parent


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
def test_wherever_writing_stopped_nothing_is_lost_or_doubled(
    tmp_path: Path, data: st.DataObject
) -> None:
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


def limited(path: Path, limit: int, seconds: float) -> subprocess.CompletedProcess[str]:
    """Adds clip 1 in a process whose files may not grow beyond `limit` bytes."""
    code = (
        "import sys; from pathlib import Path; from tests.test_manifest import Manifest, clip\n"
        "with Manifest(Path(sys.argv[1])) as manifest: manifest.add(clip(1, float(sys.argv[2])))"
    )

    def cap() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    command = [sys.executable, "-B", "-c", code, str(path), str(seconds)]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=cap,
    )


def test_a_disk_that_is_full_leaves_no_part_of_a_clip(tmp_path: Path) -> None:
    path = tmp_path / "manifest.tsv"
    fill(path, 0)
    before = path.read_bytes()
    for limit, seconds in [(len(before) + 20, 0.001), (50, 30.0)]:
        done = limited(path, limit, seconds)
        assert "OSError: [Errno 27]" in done.stderr
        assert path.read_bytes() == before
        assert not list(tmp_path.rglob("*.partial"))
    fill(path, 1)
    assert path.read_bytes().startswith(before)
