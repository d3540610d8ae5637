from pathlib import Path

import numpy as np
import pytest
import soundfile

from model.bench.clips import BenchError, read_clips, read_references


def record(path: Path, seconds: float = 0.5, rate: int = 16_000, channels: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full((round(seconds * rate), channels), 0.25), rate)
    return path


def test_files_directories_and_lists_in_their_order(tmp_path: Path) -> None:
    record(tmp_path / "folder" / "b.flac")
    record(tmp_path / "folder" / "deeper" / "c.wav")
    record(tmp_path / "folder" / "a.WAV")
    (tmp_path / "folder" / "notes.md").write_text("not a recording")
    single = record(tmp_path / "z.ogg")
    record(tmp_path / "y.wav")
    (tmp_path / "some.txt").write_text("y.wav\n\nfolder/b.flac\n")
    places = [single, tmp_path / "folder", tmp_path / "some.txt"]
    names = [clip.name for clip in read_clips(places)]
    assert names == ["z.ogg", "a.WAV", "b.flac", "c.wav", "y.wav", "b.flac"]
    assert [clip.name for clip in read_clips(places, limit=2)] == names[:2]


def test_recordings_become_16_khz_mono(tmp_path: Path) -> None:
    (clip,) = read_clips([record(tmp_path / "a.wav", 1.0, 48_000, 2)])
    assert clip.audio.dtype == np.float32
    assert (clip.audio.shape, clip.seconds) == ((16_000,), 1.0)
    assert clip.audio[8000] == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize(
    "table",
    [
        "clips/a.wav\tgood morning\nclips/b.wav\t\n",
        "x\ttranscript\tpath\n1\tgood morning\tclips/a.wav\n",
    ],
)
def test_references_with_and_without_a_header(tmp_path: Path, table: str) -> None:
    """Found by path, as seen from the table; an empty transcript is none."""
    record(tmp_path / "clips" / "a.wav")
    record(tmp_path / "clips" / "b.wav")
    (tmp_path / "all.tsv").write_text(table)
    clips = read_clips([tmp_path / "clips"], tmp_path / "all.tsv")
    assert [clip.transcript for clip in clips] == ["good morning", None]


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    long = record(tmp_path / "long.wav", 30.1)
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"RIFF nonsense")
    (tmp_path / "bad.tsv").write_text("a.wav\ttext\nb.wav\n")
    (tmp_path / "empty").mkdir()
    for place, words in (
        (long, r"long.wav is 30.10 s long: an utterance is at most 30 s. Split it"),
        (broken, "broken.wav cannot be read as a recording"),
        (tmp_path / "missing", "missing is neither a file nor a directory"),
        (tmp_path / "empty", r"no recordings in .*empty: name files.*\.flac"),
    ):
        with pytest.raises(BenchError, match=words):
            read_clips([place])
    with pytest.raises(BenchError, match="row 2 has no path and transcript"):
        read_references(tmp_path / "bad.tsv")
    with pytest.raises(BenchError, match=r"none.tsv cannot be read"):
        read_references(tmp_path / "none.tsv")
