from dataclasses import replace
from pathlib import Path

import pytest

from model.bench.sections import BLOCKS, TEMPERATURES, blocks, engines, share, temperature
from tests.support.tiny_bench import PLAN, field, save_tiny_drafter


def test_engines_side_by_side(tmp_path: Path) -> None:
    """Every batch size, captiond's own ways exact, those that cannot run with their reason."""
    plan = replace(PLAN, engines=("oracle", "again", "drafter", "transformers"))
    found = engines(field(tmp_path, plan))
    units = {batch: figures["units"] for batch, figures in found["batches"].items()}
    assert units == {"1": 5, "4": 2}
    for figures in found["batches"].values():
        rows = {row["engine"]: row for row in figures["rows"]}
        assert list(rows) == ["greedy", "oracle", "drafter", "again", "transformers"]
        assert rows["greedy"]["gain"]["ratio"] == 1.0
        absent = "no trained drafter was given (--drafter)"
        assert rows["drafter"] == {"engine": "drafter", "absent": absent}
        for name in ("greedy", "oracle", "again"):
            assert (rows[name]["token_mismatches"], rows[name]["unsteady"]) == (0, 0)
            assert "decoder_gain" in rows[name]
        assert rows["oracle"]["tau"] > 1.5 > rows["greedy"]["tau"] == 1.0
        assert (rows["again"]["passes"], rows["again"]["tau"]) == (0.0, None)
        assert rows["transformers"]["text_mismatches"] == 0
        assert "alpha" not in rows["transformers"]
        assert rows["transformers"]["words"]["reference_words"] == 4  # two clips have a transcript


def test_without_references_there_is_no_error_rate(tmp_path: Path) -> None:
    run = field(tmp_path)
    run.clips = [replace(clip, transcript=None) for clip in run.clips]
    rows = [row for figures in engines(run)["batches"].values() for row in figures["rows"]]
    assert rows
    assert all("words" not in row for row in rows)


@pytest.mark.parametrize("trained", [False, True])
def test_blocks_from_none_to_eight(tmp_path: Path, *, trained: bool) -> None:
    """Plain decoding first; the same tokens with every block."""
    drafter = save_tiny_drafter(tmp_path / "tiny.safetensors") if trained else None
    found = blocks(field(tmp_path, replace(PLAN, drafter=drafter)))
    assert [row["k"] for row in found["rows"]] == [0, *BLOCKS]
    assert all(row["token_mismatches"] == 0 for row in found["rows"])
    assert [row["engine"] for row in found["rows"][1:]] == ["drafter" if trained else "oracle"] * 4
    if not trained:
        alphas = [row["alpha"] for row in found["rows"][1:4]]
        assert alphas == sorted(alphas, reverse=True)


@pytest.mark.parametrize("trained", [False, True])
def test_temperatures_against_plain_sampling(tmp_path: Path, *, trained: bool) -> None:
    drafter = save_tiny_drafter(tmp_path / "tiny.safetensors") if trained else None
    found = temperature(field(tmp_path, replace(PLAN, drafter=drafter)))
    assert [row["temperature"] for row in found["rows"]] == list(TEMPERATURES)
    for row in found["rows"]:
        assert 0 <= row["alpha"] <= 1
        assert row["tau"] >= 1.0
        assert min(row["plain"]["tokens_per_s"], row["drafted"]["tokens_per_s"]) > 0


def test_the_encoder_s_share_by_length(tmp_path: Path) -> None:
    """Every clip in one quartile, the shortest first."""
    found = share(field(tmp_path))
    assert found["drafted_by"] == "oracle"
    assert sum(row["clips"] for row in found["rows"]) == 5
    edges = [edge for row in found["rows"] for edge in (row["shortest_s"], row["longest_s"])]
    assert edges == sorted(edges)
    assert all(row["encode_s"] > 0 and row["greedy"] > 0 for row in found["rows"])
