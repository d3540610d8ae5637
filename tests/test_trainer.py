import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from model.checkpoints.load import Checkpoint
from model.drafting.drafter_files import load_drafter, read_metadata
from model.training.data.cache import CacheError
from model.training.recipe import Recipe
from model.training.score import Score
from model.training.trainer import Stopped, Trainer
from tests.support.lessons import RECIPE, fill, passages
from tests.support.tiny import CHECKPOINT, tiny_checkpoint


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trainer")
    return fill(folder / "cache", passages(folder / "audio", 40))


def trainer(
    filled: Path, directory: Path, recipe: Recipe = RECIPE, checkpoint: Checkpoint = CHECKPOINT
) -> Trainer:
    return Trainer(checkpoint, [filled], recipe, directory)


def checkpoint_of(directory: Path) -> dict[str, Any]:
    saved: dict[str, Any] = torch.load(directory / "checkpoint.pt", weights_only=True)
    return saved


@pytest.mark.parametrize(
    "recipe",
    [RECIPE, replace(RECIPE, kind="speech", layers=(1,), masked=1.0)],
    ids=["parallel", "speech"],
)
def test_a_resumed_run_is_an_unbroken_one(filled: Path, tmp_path: Path, recipe: Recipe) -> None:
    """Bit for bit: weights, optimiser, curve and the best network; stopped between validations, at one."""
    whole = trainer(filled, tmp_path / "whole", recipe).run()
    for stop in (3, 4):
        asked = count(checkpoint_of(tmp_path / "stopped")["done"] + 1 if stop > 3 else 1)
        again = trainer(filled, tmp_path / "stopped", recipe)
        with pytest.raises(Stopped, match=f"stopped after {stop} of 6 steps"):
            again.run(lambda: next(asked) == stop)  # noqa: B023
    resumed = trainer(filled, tmp_path / "stopped", recipe).run()
    assert resumed == whole
    one, other = checkpoint_of(tmp_path / "whole"), checkpoint_of(tmp_path / "stopped")
    assert one["done"] == other["done"] == 6
    for name, weight in one["network"].items():
        assert torch.equal(weight, other["network"][name]), name
    for number, state in one["optimizer"]["state"].items():
        for name, tensor in state.items():
            assert torch.equal(tensor, other["optimizer"]["state"][number][name])
    for name in ("curve.json", "vocabulary.json"):
        texts = [(tmp_path / run / name).read_text() for run in ("whole", "stopped")]
        assert texts[0] == texts[1]
    paths = [tmp_path / run / "best.safetensors" for run in ("whole", "stopped")]
    assert read_metadata(paths[0]) == read_metadata(paths[1])
    first, second = (load_drafter(path, CHECKPOINT).network.state_dict() for path in paths)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_training_helps(filled: Path, tmp_path: Path) -> None:
    """The loss falls, and what is kept can be read again."""
    recipe = replace(RECIPE, steps=40, validate_every=10, coverage=1.0)
    trainer(filled, tmp_path, recipe).run()
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert [point["step"] for point in curve] == [0, 10, 20, 30, 40]
    assert "loss" not in curve[0]
    assert curve[-1]["loss"] < 0.9 * curve[1]["loss"]
    best = load_drafter(tmp_path / "best.safetensors", CHECKPOINT)
    assert best.network.architecture.vocabulary is None
    assert best.network.architecture.block == len(best.acceptance) == 4


def test_what_is_kept_is_the_best_not_the_last(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a run that goes on from a checkpoint; of equals it is the first."""
    scores = iter(Score((4,), (tau - 1,), (tau,)) for tau in (1, 3, 3, 2))
    monkeypatch.setattr("model.training.trainer.walk_all", lambda *_, **__: next(scores))
    with pytest.raises(Stopped):
        trainer(filled, tmp_path).run((tmp_path / "checkpoint.pt").exists)
    best = tmp_path / "best.safetensors"
    kept = best.read_bytes()
    trainer(filled, tmp_path).run()
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert [(point["step"], point["tau"]) for point in curve] == [(0, 1), (2, 3), (4, 3), (6, 2)]
    assert read_metadata(best)["step"] == "2"
    assert best.read_bytes() == kept


def test_the_vocabulary_is_chosen_once(filled: Path, tmp_path: Path) -> None:
    """And the drafter is cut to it."""
    trainer(filled, tmp_path, replace(RECIPE, steps=1)).run()
    chosen = tuple(json.loads((tmp_path / "vocabulary.json").read_text()))
    best = load_drafter(tmp_path / "best.safetensors", CHECKPOINT)
    assert best.network.architecture.vocabulary == chosen
    assert 0 < len(chosen) < 200


def test_another_recipes_run_is_not_gone_on_with(filled: Path, tmp_path: Path) -> None:
    trainer(filled, tmp_path).run()
    with pytest.raises(CacheError, match="holds a run of another recipe"):
        trainer(filled, tmp_path, replace(RECIPE, peak=1e-3)).run()


def test_another_targets_cache_is_refused(filled: Path, tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="were made for tiny, not for tiny-random"):
        trainer(filled, tmp_path, checkpoint=tiny_checkpoint(seed=9))


@pytest.mark.parametrize(("content", "kind"), [(b"nonsense", "UnpicklingError"), (b"", "EOFError")])
def test_damaged_files_are_named(filled: Path, tmp_path: Path, content: bytes, kind: str) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(CacheError, match=rf"checkpoint.pt cannot be read \({kind}\): delete it"):
        trainer(filled, tmp_path).run()
