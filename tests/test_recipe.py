from dataclasses import asdict

import pytest

from model.training.recipe import Recipe, last_layers, taps_for
from tests.tiny import tiny_config


@pytest.mark.parametrize(
    ("blocks", "layers", "taps"),
    [
        (6, (3, 4, 5), (0, 1, 2, 3, 4, 5)),
        (4, (1, 2, 3), (0, 1, 2, 3)),
        (2, (0, 1), (0, 1)),
        (32, (29, 30, 31), (1, 8, 15, 22, 28, 29, 30)),
    ],
)
def test_defaults_suit_every_size(
    blocks: int, layers: tuple[int, ...], taps: tuple[int, ...]
) -> None:
    """The last three blocks; features spread as in the paper, and what enters those blocks."""
    config = tiny_config(decoder_layers=blocks)
    assert last_layers(config) == layers
    assert taps_for(config, layers, soft=False) == taps


def test_soft_labels_need_the_last_block() -> None:
    assert taps_for(tiny_config(decoder_layers=32), (0, 1), soft=True)[-1] == 31


def test_a_recipe_survives_a_checkpoint() -> None:
    recipe = Recipe(layers=(1, 2), taps=(0, 1))
    assert Recipe(**asdict(recipe)) == recipe
