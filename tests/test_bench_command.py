import json
from pathlib import Path

import pytest

from daemon import cli
from tests.benchmarks import gpu_check
from tests.support.lessons import record
from tests.support.tiny_files import save_transformers


def run(*arguments: str | Path) -> int:
    """`captiond bench` with these arguments."""
    return cli.main(["bench", *map(str, arguments)])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    return save_transformers(tmp_path / "tiny")


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    for number in range(3):
        record(tmp_path / "audio" / f"{number}.wav", number, 9000)
    (tmp_path / "audio" / "all.tsv").write_text("0.wav\tgood morning\n")
    return tmp_path / "audio"


def test_from_recordings_to_results(model: Path, audio: Path, tmp_path: Path) -> None:
    """Two sections of a model on disk; of three recordings two are read, one has a transcript."""
    output = tmp_path / "results"
    once = ("--repeats", "1", "--warm-ups", "0", "--output", output, "--device", "cpu")
    asked = ("--limit", "2", "--references", audio / "all.tsv", "--engines", "oracle,assisted")
    status = run(
        "engines", "passes", "--audio", audio, "--model", model, "--batch", "2", *asked, *once
    )
    assert status == 0
    (sections,) = json.loads(output.with_suffix(".json").read_text())["models"].values()
    assert set(sections) == {"engines", "passes"}
    assert sections["engines"]["clips"] == 2
    # The share of 0.575 that blocks of eight are to keep takes this chance of each token.
    assert sections["engines"]["oracle"] == {"block": 8, "chance_of_each_token": 0.8753}
    rows = sections["engines"]["batches"]["2"]["rows"]
    assert [row["engine"] for row in rows] == ["greedy", "oracle", "assisted"]
    assert rows[0]["words"]["reference_words"] == 2
    assert rows[2]["absent"] == "transformers assists one utterance at a time"
    assert output.with_suffix(".svg").exists()


def test_passes_need_no_recordings(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "results"
    assert run("passes", "--model", model, "--repeats", "1", "--output", output) == 0
    assert not output.with_suffix(".svg").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["pases"], 2, "no section pases: choose from engines, passes"),
        (["engines"], 2, "name recordings with --audio"),
        (["engines", "--audio", "x", "--engines", "gready"], 2, "no engine gready: choose from"),
        (["passes", "--shapes", "smal"], 2, "no shape smal: choose from tiny, base"),
        (["passes", "--batch", "97"], 2, "batches have at most 96 utterances, not 97"),
        (["engines", "--audio", "nowhere"], 1, "nowhere is neither a file nor a directory"),
        (["passes", "--model", "nothing"], 1, "there is no model 'nothing'"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, words: str
) -> None:
    assert run(*arguments) == status
    said = capsys.readouterr().err
    assert said.startswith("captiond bench: ")
    assert words in said


def test_results_of_another_program_are_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "results.json").write_text("[]")
    assert run("passes", "--model", "nothing", "--output", tmp_path / "results") == 1
    assert "name another --output" in capsys.readouterr().err


def test_the_check_for_cuda_machines_runs_without_one() -> None:
    """The same code on the CPU with static shapes: nothing may differ there."""
    figures = gpu_check.measure(gpu_check.tiny())
    assert [row["batch"] for row in figures["rows"]] == [1, 2, 4]
    assert figures["left_out_for_time"] == []
    for row in figures["rows"]:
        assert (row["drafted_differ"], row["unsteady"]) == (0, 0)
        assert row["tau"] > 1.0
        assert ("eager" in row) == (row["batch"] <= 2)
        if "eager" in row:
            assert {way["mismatches"] for way in row["eager"].values()} == {0}
