from dataclasses import replace
from typing import Any

import pytest

from model.training.recipe import Recipe, aux_layers_for, last_layers, speech_aux_layers
from tests.support.tiny import tiny_config


@pytest.mark.parametrize(
    ("blocks", "layers", "aux_layers"),
    [
        (6, (3, 4, 5), (0, 1, 2, 3, 4, 5)),
        (4, (1, 2, 3), (0, 1, 2, 3)),
        (2, (0, 1), (0, 1)),
        (32, (29, 30, 31), (1, 8, 15, 22, 28, 29, 30)),
    ],
)
def test_defaults_suit_every_size(
    blocks: int, layers: tuple[int, ...], aux_layers: tuple[int, ...]
) -> None:
    """The last three blocks; features spread as in the paper, and what enters those blocks."""
    config = tiny_config(decoder_layers=blocks)
    assert last_layers(config) == layers
    assert aux_layers_for(config, layers, soft=False) == aux_layers


def test_soft_labels_need_the_last_block() -> None:
    assert aux_layers_for(tiny_config(decoder_layers=32), (0, 1), soft=True)[-1] == 31


@pytest.mark.parametrize(
    ("blocks", "layer", "aux_layers"),
    [(32, 31, (1, 15, 30)), (6, 5, (1, 2, 4)), (4, 3, (0, 1, 2)), (3, 2, (0, 1)), (2, 0, (0,))],
)
def test_a_speech_draft_fuses_low_middle_and_high(
    blocks: int, layer: int, aux_layers: tuple[int, ...]
) -> None:
    """The high one enters the block that it begins as; soft labels need the last one, too."""
    config = tiny_config(decoder_layers=blocks)
    assert speech_aux_layers(config, layer, soft=False) == aux_layers
    assert speech_aux_layers(config, layer, soft=True) == (*aux_layers, blocks - 1)


@pytest.mark.parametrize("blocks", [2, 4, 6, 12, 24, 32])
def test_one_cache_serves_both_kinds(blocks: int) -> None:
    """Of every Whisper's size: by default a Speech-Draft needs no block that is not kept anyway."""
    config = tiny_config(decoder_layers=blocks)
    kept = aux_layers_for(config, last_layers(config), soft=False)
    assert set(speech_aux_layers(config, blocks - 1, soft=False)) <= set(kept)


@pytest.mark.parametrize(
    "change", [{"layers": (0, 1)}, {"rope": False}, {"history": False}, {"audio": False}]
)
def test_a_speech_draft_has_no_ablations(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one layer, rotation and both memories"):
        replace(Recipe(layers=(1,), aux_layers=(0, 1), kind="speech"), **change)
