import logging
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from model.training.data import corpus
from tests.support.lessons import noise, record
from tests.support.python import python


def manifest(
    folder: Path, *rows: str, header: str = "path\tseconds\tuse\tlanguage\tspeaker"
) -> Path:
    path = folder / "manifest.tsv"
    path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return path


def test_a_manifest_gives_its_rows_for_training(tmp_path: Path) -> None:
    """Others are for tests, or in another language. The source is what stands before a colon."""
    path = manifest(
        tmp_path,
        'a/1.wav\t1.5\ttrain\ten\tann\tCC0\tlibri: "x',
        "a/2.wav\t2.5\ttest\ten\tann\tCC0\tlibri",
        "a/3.wav\t3.5\ttrain\tde\tann\tCC0\tlibri",
        "b/4.wav\t4.5\ttrain\ten\tbob\t\tother",
        header="path\tseconds\tuse\tlanguage\tspeaker\tlicence\tsource",
    )
    first, second = corpus.find([path])
    assert (first.origin, first.seconds, first.speaker) == ("a/1.wav", 1.5, "ann")
    assert (first.licence, first.source, first.content) == ("CC0", "libri", tmp_path / "a/1.wav")
    assert (second.licence, second.source) == ("not stated", "other")
    assert corpus.find([tmp_path]) == [first, second], "a directory with a manifest is its manifest"
    assert [one.origin for one in corpus.find([path], use="test")] == ["a/2.wav"]
    assert [one.origin for one in corpus.find([path], language="de")] == ["a/3.wav"]


def test_a_manifest_of_paths_alone_is_enough(tmp_path: Path) -> None:
    record(tmp_path / "ann" / "1.wav", 1)
    (one,) = corpus.find([manifest(tmp_path, "ann/1.wav", header="path")])
    assert (one.seconds, one.speaker, one.source) == (0.5, "ann", tmp_path.name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("file\nx.wav", "no header with a column `path`"),
        ("", "no header with a column `path`"),
        ("path\tseconds\nx.wav\tlong", "line 2: 'long' is no number of seconds"),
    ],
)
def test_a_broken_manifest_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "m.tsv"
    path.write_text(text)
    with pytest.raises(corpus.CorpusError, match=says):
        corpus.find([path])


def test_librispeech_names_its_speakers(tmp_path: Path) -> None:
    """<speaker>-<chapter>-<number>.flac, whatever the folders are called."""
    for name in ("19/198/19-198-0001.flac", "19/198/19-198-0000.flac", "26/495/26-495-0000.flac"):
        record(tmp_path / "train-clean-100" / name, 1)
    found = corpus.find([tmp_path / "train-clean-100"])
    assert [Path(one.origin).stem for one in found] == ["19-198-0000", "19-198-0001", "26-495-0000"]
    assert [one.speaker for one in found] == ["19", "19", "26"]
    assert {one.source for one in found} == {"librispeech"}


def test_elsewhere_folders_are_speakers(tmp_path: Path) -> None:
    """And what is no audio by its name is passed over."""
    record(tmp_path / "ann" / "1.ogg", 1)
    record(tmp_path / "bob" / "2.wav", 1)
    (tmp_path / "bob" / "readme.txt").write_text("no audio")
    found = corpus.find([tmp_path])
    assert [one.speaker for one in found] == ["ann", "bob"]
    assert {one.source for one in found} == {tmp_path.name}


def test_a_list_names_files_beside_it(tmp_path: Path) -> None:
    record(tmp_path / "ann" / "1.wav", 1)
    other = record(tmp_path / "bob" / "2.wav", 1)
    (tmp_path / "some.lst").write_text(f"ann/1.wav\n\n{other}\n")
    found = corpus.find([tmp_path / "some.lst"])
    assert [one.content for one in found] == [tmp_path / "ann" / "1.wav", other]
    assert {one.source for one in found} == {"some"}


def test_what_is_left_out_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Too long for the target, or no audio."""
    record(tmp_path / "good.wav", 1)
    record(tmp_path / "long.wav", 1, samples=31 * 8000, rate=8000)
    (tmp_path / "bad.flac").write_bytes(b"nonsense")
    excluded: Counter[str] = Counter()
    with caplog.at_level(logging.WARNING):
        (one,) = corpus.find([tmp_path], excluded=excluded)
    assert one.origin.endswith("good.wav")
    assert excluded == {"unreadable": 1, "longer than 30 s": 1}
    assert "bad.flac cannot be read as audio" in caplog.text


def test_places_without_anything_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.wav").write_bytes(b"nonsense")
    with pytest.raises(
        corpus.CorpusError, match=r"no recordings of up to 30 s in .*; 1 unreadable"
    ):
        corpus.find([tmp_path])
    with pytest.raises(corpus.CorpusError, match="absent does not exist"):
        corpus.find([tmp_path / "absent"])
    with pytest.raises(corpus.CorpusError, match="is no manifest"):
        corpus.find([tmp_path / "bad.wav"])


def test_audio_comes_as_the_target_wants_it(tmp_path: Path) -> None:
    """16 kHz, one channel, whatever the file has."""
    stereo = np.stack((noise(1, 4410), noise(2, 4410)), 1)
    soundfile.write(tmp_path / "s.wav", stereo, 44_100, subtype="FLOAT")
    (one,) = corpus.find([tmp_path])
    audio = one.read()
    assert audio.dtype == np.float32
    assert audio.shape == (1600,)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read as audio"),
        (b"nonsense", "cannot be read as audio"),
        ([], "holds no samples, or some that are not finite"),
        ([0.0, math.nan], "holds no samples, or some that are not finite"),
    ],
)
def test_audio_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | list[float] | None, says: str
) -> None:
    path = tmp_path / "x.wav"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        soundfile.write(path, np.array(content, np.float32), 16_000, subtype="FLOAT")
    with pytest.raises(corpus.CorpusError, match=f"the second one {says}"):
        corpus.Recording("the second one", 1.0, "", "", "", path).read()


def recording(seconds: float, speaker: str = "ann", source: str = "s") -> corpus.Recording:
    return corpus.Recording(f"{source}/{speaker}/{seconds}", seconds, speaker, "", source, Path())


@given(st.lists(st.tuples(st.floats(0.1, 30), st.sampled_from("ab"), st.sampled_from("xy"))))
def test_joining_keeps_every_recording_and_its_speaker(parts: list[tuple[float, str, str]]) -> None:
    """Each once, up to 30 s, and never two voices in one passage."""
    recordings = [recording(*part) for part in parts]
    joined = corpus.join(recordings, seed=1)
    assert Counter(p for one in joined for p in one.parts) == Counter(recordings)
    for one in joined:
        assert len({(part.source, part.speaker) for part in one.parts}) == 1
        assert one.seconds <= 30
    assert corpus.join(recordings, seed=1) == joined


def test_joined_passages_fill_the_window() -> None:
    """Most last 15 to 28 s; some are short, as utterances are."""
    joined = corpus.join([recording(2.0) for _ in range(2000)], seed=0)
    long = sum(one.seconds > 13 for one in joined)
    assert 0.6 < long / len(joined) < 0.9
    assert min(one.seconds for one in joined) < 13


def test_a_passage_is_its_parts_one_after_the_other(tmp_path: Path) -> None:
    for number in (1, 2):
        record(tmp_path / f"{number}.wav", number)
    parts = corpus.find([tmp_path])
    audio = corpus.Passage(tuple(parts)).read()
    assert np.array_equal(audio, np.concatenate([part.read() for part in parts]))


def test_a_listing_tells_passages_apart() -> None:
    a, b = recording(1.0), recording(2.0)
    together, apart = [corpus.Passage((a, b))], [corpus.Passage((a,)), corpus.Passage((b,))]
    assert corpus.listing(together) == corpus.listing([corpus.Passage((a, b))])
    assert len({corpus.listing(together), corpus.listing(apart), corpus.listing(apart[::-1])}) == 3


def test_perturbation_is_a_function_of_seed_and_place() -> None:
    """And changes speed and level alone; nothing becomes too long."""
    plain = [corpus.Passage((recording(seconds),)) for seconds in (5.0, 10.0, 28.0) * 40]
    changed = corpus.perturb(plain, seed=1)
    assert changed == corpus.perturb(plain, seed=1)
    assert changed != corpus.perturb(plain, seed=2)
    assert changed[:5] == corpus.perturb(plain[:5], seed=1)
    assert [one.parts for one in changed] == [one.parts for one in plain]
    assert {one.speed for one in changed} == set(corpus.SPEEDS)
    assert all(one.seconds <= 30 and -20 <= one.gain <= 6 for one in changed)


def test_speed_changes_pitch_and_length_alike(tmp_path: Path) -> None:
    """A tone of 400 Hz, ten per cent faster, is one of 440 Hz."""
    tone = np.sin(np.arange(16_000) * 2 * np.pi * 400 / 16_000).astype(np.float32) * 0.5
    soundfile.write(tmp_path / "t.wav", tone, 16_000)
    (one,) = corpus.find([tmp_path])
    faster = corpus.Passage((one,), speed=1.1)
    audio = faster.read()
    assert len(audio) == pytest.approx(16_000 / 1.1, abs=2)
    assert faster.seconds == pytest.approx(1 / 1.1)
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio))))
    assert spectrum.argmax() * 16_000 / len(audio) == pytest.approx(440, abs=2)


def test_gain_stops_at_full_scale(tmp_path: Path) -> None:
    record(tmp_path / "n.wav", 1)
    (one,) = corpus.find([tmp_path])
    plain = one.read()
    quieter = corpus.Passage((one,), gain=-20.0).read()
    assert np.allclose(quieter, plain / 10, atol=1e-6)
    louder = corpus.Passage((one,), gain=40.0).read()
    assert np.abs(louder).max() == pytest.approx(1.0)


def saved_dataset(folder: Path, splits: dict[str, int], **columns: list[str]) -> Path:
    """A dataset of noise with these splits, as `save_to_disk` leaves it."""
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    made = {}
    for name, count in splits.items():
        files = [record(folder / "raw" / f"{name}{n}.wav", n) for n in range(count)]
        audio = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
        made[name] = datasets.Dataset.from_dict({"audio": audio} | columns)
    datasets.DatasetDict(made).save_to_disk(str(folder / "saved"))
    return folder / "saved"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_saved_dataset_gives_its_training_splits(tmp_path: Path) -> None:
    """With the bytes that its table holds, read only when they are wanted."""
    place = saved_dataset(tmp_path, {"train.100": 2, "test": 2}, speaker_id=["7", "8"])
    found = corpus.find([place])
    assert [(one.origin, one.speaker, one.seconds) for one in found] == [
        ("saved/train.100/0", "7", 0.5),
        ("saved/train.100/1", "8", 0.5),
    ]
    assert np.array_equal(found[1].read(), soundfile.read(tmp_path / "raw/train.1001.wav")[0])
    assert len(corpus.find([place / "test"])) == 2, "a split named by itself is meant"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_dataset_without_audio_to_train_on_says_what_it_has(tmp_path: Path) -> None:
    place = saved_dataset(tmp_path, {"test": 1})
    with pytest.raises(corpus.CorpusError, match=r"has no split train\*, but test"):
        corpus.find([place])


def test_datasets_are_imported_only_where_there_is_one(tmp_path: Path) -> None:
    """The package is large, and most places need none of it."""
    record(tmp_path / "1.wav", 1)
    code = (
        "import sys; from pathlib import Path; from model.training.data.corpus import find\n"
        "assert len(find([Path(sys.argv[1])])) == 1\n"
        "assert 'datasets' not in sys.modules"
    )
    python("-c", code, str(tmp_path))
