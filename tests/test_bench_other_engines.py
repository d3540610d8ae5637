import importlib.util
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import WhisperForConditionalGeneration

from model.bench import other_engines
from model.bench.clips import Clip
from model.bench.contenders import EngineUnderTest, greedy
from model.bench.other_engines import (
    FasterWhisper,
    Transformers,
    Unavailable,
    assistant_for,
    ctranslate2_directory,
)
from model.bench.word_errors import word_errors
from model.checkpoints.load import PACKAGES, load
from tests.support.audio import ABSENT, ROOT, recordings
from tests.support.tiny import CHECKPOINT, tiny_checkpoint
from tests.support.tiny_bench import clips
from tests.support.tiny_files import in_parts

CLIPS = clips()


def ours() -> list[tuple[int, ...]]:
    """Greedy tokens of the engine, alone each."""
    engine_under_test = EngineUnderTest.plain(CHECKPOINT, device="cpu", slots=1, block=4)
    return [greedy(engine_under_test, "en").transcribe([clip])[0].tokens for clip in CLIPS]


@pytest.mark.parametrize("batch", [1, 5])
def test_transformers_says_what_the_engine_says(batch: int) -> None:
    """Alone and in a batch, the end of transcript included: the same prompt tokens, rules and limit."""
    other = Transformers("transformers", CHECKPOINT, "en")
    units = [CLIPS[at : at + batch] for at in range(0, len(CLIPS), batch)]
    transcriptions = [transcription for unit in units for transcription in other.transcribe(unit)]
    assert [transcription.tokens for transcription in transcriptions] == ours()
    eot = CHECKPOINT.tokens.eot
    assert [r.text_tokens for r in transcriptions] == [
        sum(t < eot for t in r.tokens) for r in transcriptions
    ]
    assert all(
        not transcription.exact and transcription.rounds is None for transcription in transcriptions
    )


def test_transformers_takes_sdpa(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        WhisperForConditionalGeneration,
        "set_attn_implementation",
        lambda _, name: asked.append(name),
    )
    Transformers("x", CHECKPOINT, "en")
    assert asked == ["sdpa"]


def test_an_assistant_of_the_same_weights_changes_no_text() -> None:
    other = Transformers("assisted", CHECKPOINT, "en", assistant=CHECKPOINT)
    assert other.transcribe(CLIPS[:1])[0].tokens == ours()[0]


def test_why_there_is_no_assistant(monkeypatch: pytest.MonkeyPatch) -> None:
    """No smaller model, none on this machine, another vocabulary."""
    monkeypatch.setattr(other_engines, "load", lambda _: tiny_checkpoint(vocab_size=300))
    with pytest.raises(Unavailable, match="no smaller model than tiny to assist it"):
        assistant_for(replace(CHECKPOINT, name="tiny"), None)
    with pytest.raises(Unavailable, match="the vocabulary of other is not that of tiny-random"):
        assistant_for(replace(CHECKPOINT, tokens=replace(CHECKPOINT.tokens, vocabulary=1)), "other")
    assert assistant_for(CHECKPOINT, None).tokens.vocabulary == CHECKPOINT.tokens.vocabulary
    monkeypatch.undo()
    with pytest.raises(Unavailable, match="no assistant: there is no model 'no such model'"):
        assistant_for(CHECKPOINT, "no such model")


def test_a_rival_that_is_not_installed_says_what_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match=r"faster-whisper is not installed: captiond\[compare\]"):
        FasterWhisper("faster-whisper-int8", tmp_path, "int8", "en", "cpu", 1)


def test_weights_in_pieces_are_joined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Beside the files that faster-whisper reads with them; what is whole is taken where it lies."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    package = in_parts(tmp_path, b"one two")
    (tmp_path / "tinypart1" / "data" / "vocabulary.txt").write_text("a")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(PACKAGES, "made", package)
    checkpoint = replace(CHECKPOINT, name="made", source="package tinypart1")
    assert ctranslate2_directory(checkpoint, scratch) == scratch
    found = {path.name: path.read_text() for path in scratch.iterdir()}
    assert found == {"model.bin": "one two", "config.json": "{}", "vocabulary.txt": "a"}
    whole = replace(CHECKPOINT, source=str(scratch))
    assert ctranslate2_directory(whole, tmp_path / "unused") == scratch


def test_weights_of_another_format_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="which is not in CTranslate2's format"):
        ctranslate2_directory(replace(CHECKPOINT, name="base", source=str(tmp_path)), tmp_path)


def test_faster_whisper_gets_all_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Clips of one batch lie end to end and are cut apart where they meet, to the sample."""
    cut: list[np.ndarray] = []

    class Model:
        max_length = 448

        def __init__(self, path: str, **options: object) -> None:
            self.made_of = (path, options["compute_type"])

        def transcribe(self, audio: np.ndarray, **_: object) -> tuple[list[object], None]:
            cut.append(audio)
            return [types.SimpleNamespace(tokens=[1, 2], text=" one")], None

    class Pipeline:
        def __init__(self, _model: Model) -> None:
            pass

        def transcribe(
            self, audio: np.ndarray, *, clip_timestamps: list[dict[str, float]], **_: object
        ) -> tuple[list[object], None]:
            for clip in clip_timestamps:
                start, end = (int(clip[key] * 16_000) for key in ("start", "end"))
                cut.append(audio[start:end])
            return [types.SimpleNamespace(tokens=[n], text=f" {n}") for n in range(len(cut))], None

    fake = types.ModuleType("faster_whisper")
    vars(fake).update(WhisperModel=Model, BatchedInferencePipeline=Pipeline)
    fake.__spec__ = importlib.util.spec_from_loader("faster_whisper", loader=None)
    monkeypatch.setitem(sys.modules, "faster_whisper", fake)
    other = FasterWhisper("faster-whisper-int8", tmp_path, "int8", "en", "cpu", 1)
    transcriptions = other.transcribe(CLIPS)
    assert [transcription.text for transcription in transcriptions] == list("01234")
    assert all(np.array_equal(got, clip.audio) for got, clip in zip(cut, CLIPS, strict=True))
    (alone,) = other.transcribe(CLIPS[:1])
    assert (alone.text, alone.tokens, alone.text_tokens) == ("one", (1, 2), 2)


@pytest.mark.real
@pytest.mark.skipif(not (ROOT / "manifest.tsv").is_file(), reason=ABSENT)
def test_faster_whisper_hears_what_the_engine_hears(tmp_path: Path) -> None:
    """Genuine weights, alone and batched, float32 and int8: all but a few words.

    Its front end computes other features, and int8 other weights.
    """
    pytest.importorskip("faster_whisper")
    checkpoint = load("tiny.en")
    clips = [Clip(one.name, one.audio()) for one in recordings(under="librispeech")[:3]]
    engine_under_test = EngineUnderTest.plain(checkpoint, device="cpu", slots=3, block=8)
    wanted = [
        transcription.text for transcription in greedy(engine_under_test, "en").transcribe(clips)
    ]
    for compute in ("float32", "int8"):
        directory = ctranslate2_directory(checkpoint, tmp_path)
        other = FasterWhisper(f"faster-whisper-{compute}", directory, compute, "en", "cpu", 2)
        alone = [other.transcribe([clip])[0].text for clip in clips]
        together = [transcription.text for transcription in other.transcribe(clips)]
        for texts in (alone, together):
            assert word_errors(wanted, texts)["wer_percent"] < 15
