import json
from pathlib import Path
from typing import Any

import pytest

from model.bench.clips import BenchError
from model.bench.passes import passes
from model.bench.report import DEFINITIONS, machine, read, write
from model.bench.sections import SECTIONS
from model.checkpoints.random_weights import random_checkpoint, shape_config
from tests.support.tiny import SMALL
from tests.support.tiny_bench import field


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Every section of a real, tiny run."""
    run = field(tmp_path_factory.mktemp("scratch"))
    made = {name: section(run) for name, section in SECTIONS.items()}
    made["passes"] = passes(
        random_checkpoint("small", shape_config("tiny", **SMALL)),
        device="cpu",
        repeats=1,
        warm_ups=0,
        tell=lambda _: None,
    )
    return made


def test_sections_and_models_are_kept(tmp_path: Path, figures: dict[str, dict[str, Any]]) -> None:
    """A later run replaces its own section and leaves the others, each with its machine."""
    output = tmp_path / "docs" / "bench"
    write(output, "base", "share", figures["share"], "cpu")
    write(output, "tiny.en", "share", figures["share"], "cpu")
    again = figures["share"] | {"clips": 99}
    write(output, "base", "share", again, "cpu")
    written = write(output, "base", "blocks", figures["blocks"], "cpu")
    assert [path.suffix for path in written] == [".json", ".md"]  # no engines ran: nothing to plot
    models = read(output.with_suffix(".json"))["models"]
    assert {model: list(sections) for model, sections in models.items()} == {
        "base": ["share", "blocks"],
        "tiny.en": ["share"],
    }
    assert models["base"]["share"] == json.loads(json.dumps({"machine": machine("cpu"), **again}))
    assert read(output.with_suffix(".json"))["definitions"] == DEFINITIONS


def test_every_section_has_its_tables(tmp_path: Path, figures: dict[str, dict[str, Any]]) -> None:
    """Rows of one width, a heading for each section, every term of the tables defined."""
    output = tmp_path / "bench"
    for section, found in figures.items():
        write(output, "base", section, found, "cpu")
    text = output.with_suffix(".md").read_text(encoding="utf-8")
    for section in figures:
        assert f"## base: {section}\n" in text
    assert "\n| 9 to 1 |" not in text
    for table in (block for block in text.split("\n\n") if block.startswith("|")):
        assert len({line.count("|") for line in table.splitlines()}) == 1
    for term in ("S_G", "decoder S_G", "α", "τ", "differ", "WER", "oracle", "again"):
        assert f"* **{term}**: " in text


def test_what_was_not_run_is_only_said(tmp_path: Path, figures: dict[str, dict[str, Any]]) -> None:
    found = json.loads(json.dumps(figures["engines"]))
    for batch in found["batches"].values():
        batch["rows"].append({"engine": "drafter", "absent": "none was given"})
    written = write(tmp_path / "bench", "base", "engines", found, "cpu")
    assert [path.suffix for path in written] == [".json", ".md", ".svg"]
    assert "* drafter: not run; none was given" in written[1].read_text(encoding="utf-8")
    picture = written[2].read_text(encoding="utf-8")
    assert picture.count("<?xml") == 1
    assert "greedy" in picture
    assert "drafter" not in picture


def test_same_figures_make_same_picture(tmp_path: Path, figures: dict[str, dict[str, Any]]) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, "base", "engines", figures["engines"], "cpu")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize("text", ['{"models": 3}', "[]", "{}", "not JSON"])
def test_another_program_s_file_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(BenchError, match="name another --output"):
        read(tmp_path / "bench.json")
