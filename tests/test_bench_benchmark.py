from dataclasses import replace
from pathlib import Path

import pytest

from model.bench.benchmark import ENGINES, conditions
from model.bench.clips import BenchError
from model.bench.other_engines import Unavailable
from model.checkpoints.load import ModelError
from model.engine import build as starting
from model.whisper import measure
from model.whisper.quantised import missing_instructions
from tests.support.tiny_bench import PLAN, field, save_tiny_drafter


def test_contenders_are_made_once_and_named_as_asked(tmp_path: Path) -> None:
    """Those that share the engine share its weights."""
    run = field(tmp_path)
    for name in ("greedy", "oracle", "again", "transformers"):
        assert run.contender(name, 1).name == name
        assert run.contender(name, 1) is run.contender(name, 3)


def test_why_a_contender_is_absent_is_said_every_time(tmp_path: Path) -> None:
    run = field(tmp_path)
    for name, words in (
        ("drafter", r"no trained drafter was given \(--drafter\)"),
        ("faster-whisper-int8", "tiny-random comes from tests, which is not in CTranslate2"),
    ):
        for _ in range(2):
            with pytest.raises(Unavailable, match=words):
                run.contender(name, 1)
    with pytest.raises(Unavailable, match="one utterance at a time"):
        run.contender("assisted", 3)


@pytest.mark.skipif(bool(missing_instructions()), reason="this CPU has no int8 to speak of")
def test_the_int8_target_is_a_contender_with_a_reference_of_its_own(tmp_path: Path) -> None:
    """Drafting changes none of its tokens; where everything is int8 it is not run a second time."""
    run = field(tmp_path)
    plain = run.contender("int8", 1)
    drafted = run.contender("int8-oracle", 1)
    assert (plain.name, drafted.name) == ("int8", "int8-oracle")
    tokens = [transcription.tokens for transcription in plain.transcribe(run.clips[:4])]
    transcriptions = drafted.transcribe(run.clips[:4])
    assert [transcription.tokens for transcription in transcriptions] == tokens
    assert any(transcription.accepted for transcription in transcriptions)
    everything = field(tmp_path, replace(PLAN, precision="int8"))
    said = everything.contender("greedy", 1).transcribe(run.clips[:4])
    assert [transcription.tokens for transcription in said] == tokens
    with pytest.raises(Unavailable, match="all of captiond's engines are int8"):
        everything.contender("int8", 1)


def test_why_there_is_no_int8_contender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "missing_instructions", lambda: ["AVX-512 VNNI"])
    with pytest.raises(Unavailable, match="needs a CPU with AVX-512 VNNI"):
        field(tmp_path).contender("int8-oracle", 1)


def test_a_drafter_says_what_greedy_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paced as a daemon's is, with slots for the largest batch; where every pass takes as long, it drafts."""
    monkeypatch.setattr(measure, "timed", lambda work: (work(), 1.0))
    plan = replace(PLAN, drafter=save_tiny_drafter(tmp_path / "tiny.safetensors"))
    run = field(tmp_path, plan)
    drafted = run.contender("drafter", 4).transcribe(run.clips[:3])
    assert [transcription.tokens for transcription in drafted] == [
        run.reference[c] for c in run.clips[:3]
    ]
    assert any(transcription.proposed for transcription in drafted)


def test_a_drafter_that_cannot_be_read_is_an_error_not_an_absence(tmp_path: Path) -> None:
    run = field(tmp_path, replace(PLAN, drafter=tmp_path / "none"))
    with pytest.raises(ModelError, match="cannot be read"):
        run.contender("drafter", 1)


def test_every_engine_can_be_asked_for(tmp_path: Path) -> None:
    """Each name is known: it gives a contender of that name, or a reason."""
    run = field(tmp_path, replace(PLAN, assistant="no such model"))
    answers = {}
    for name in ENGINES:
        try:
            answers[name] = run.contender(name, 1).name
        except Unavailable as reason:
            answers[name] = str(reason)
    assert all(answers.values())
    int8 = set() if missing_instructions() else {"int8", "int8-oracle"}
    wanted = int8 | {"greedy", "oracle", "again", "transformers"}
    assert {name for name, answer in answers.items() if answer == name} == wanted


def test_a_language_that_the_model_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="does not know the language xx; it knows de, en, es"):
        field(tmp_path, replace(PLAN, language="xx"))


def test_what_the_figures_rest_on(tmp_path: Path) -> None:
    assert conditions(field(tmp_path)) == {
        "clips": 5,
        "audio_s": 3.8,
        "language": "en",
        "repeats": 1,
        "warm_ups": 0,
        "oracle": {"block": 4, "chance_of_each_token": 0.9},
        "drafter": None,
        "precision": "float32",
    }
