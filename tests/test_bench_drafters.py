from dataclasses import replace
from pathlib import Path

import pytest

from model.training.data import cache
from model.training.students import untrained_student
from tests.benchmarks.bench_drafters import (
    EvaluationSet,
    Figures,
    examine,
    held_out,
    renewed,
    variants,
)
from tests.support.lessons import RECIPE, fill, passages
from tests.support.tiny import CHECKPOINT

SHARES = {"rounds": 4, "tokens": 10, "tau": 2.5, "alpha": 0.375, "acceptance": [0.75, 1.0, 0.0]}
FIGURES: Figures = {
    "recipe": {"steps": 40},
    "hours": 1.5,
    "seconds": 90,
    "held out": SHARES | {"tau": 3.5},
    "test-other": SHARES,
    "others": SHARES | {"tau": 1.25},
    "megabytes": 2.5,
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    return fill(folder / "cache", passages(folder / "audio", 20))


def test_every_variant_is_one_that_can_be_trained() -> None:
    """A network can be made of each, and each learns from the caches that it should."""
    real, made = Path("real"), Path("made")
    chosen = variants(CHECKPOINT, [real, made], 40)
    for name, (recipe, caches) in chosen.items():
        student = untrained_student(recipe, CHECKPOINT, (3, 5, 9))
        assert sum(p.requires_grad for p in student.parameters()) > 0, name
        assert (recipe.steps, recipe.validate_every) == (40, 40)
        assert caches[0] == (made if name == "synthetic speech alone" else real)
    assert chosen["real speech alone"] == (chosen["plain"][0], [real])
    assert not chosen["without audio"][0].audio
    assert chosen["Speech-Draft"][0].kind == "speech"
    assert "real speech alone" not in variants(CHECKPOINT, [real], 40)


def test_the_page_has_a_table_for_each_model() -> None:
    """Minutes only where they are known."""
    again = FIGURES | {"seconds": None}
    found = {"base": {"plain": FIGURES, "one layer": again}, "small": {"plain": FIGURES}}
    text = renewed("# Head\n\n## old\n\nx\n\n## The reader, deleted\n\ntext\n", found)
    cells = "1.5 | 3.50 | 2.50 | 37.5% | 1.25 | .75 1.00 .00 | 2.5"
    assert text.splitlines().count(f"| plain | {cells} | 1.5 |") == 2
    assert f"| one layer | {cells} | – |" in text  # noqa: RUF001
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == ["# Head", "## base", "## small", "## The reader, deleted"]
    assert text.count("40 steps each") == 2
    assert text.endswith("text\n")


def test_what_is_trained_is_measured_again_without_training(filled: Path, tmp_path: Path) -> None:
    """The time of its training is then not known."""
    recipe = replace(RECIPE, steps=1, validate_every=1)
    audio: dict[str, EvaluationSet] = {"held out": held_out(filled, recipe)}
    assert 0 < len(audio["held out"][0]) < len(list(cache.entries(filled)))
    first = examine(CHECKPOINT, recipe, [filled], tmp_path, audio)
    assert isinstance(first["seconds"], int)
    assert first["held out"]["tau"] >= 1
    again = examine(CHECKPOINT, recipe, [filled], tmp_path, audio)
    assert again == first | {"seconds": None}
