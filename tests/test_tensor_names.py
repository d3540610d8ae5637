import pytest
import torch

from model.checkpoints.tensor_names import (
    Rule,
    apply_rules,
    count_layers,
    ctranslate2_names,
    transformers_names,
)
from tests.support.tiny import random_weights, tiny_config

CONFIG = tiny_config()
WEIGHTS = random_weights(CONFIG)


def test_every_tensor_of_ours_has_a_rule() -> None:
    """From both families of names."""
    layers = {
        f"{room}/layer_{i}/x": torch.empty(0) for room in ("encoder", "decoder") for i in (0, 1)
    }
    assert transformers_names(CONFIG).keys() == WEIGHTS.keys()
    assert ctranslate2_names(layers).keys() == WEIGHTS.keys()


def test_each_stored_tensor_is_used_once() -> None:
    """No name serves twice: nothing is loaded into two places by mistake."""
    used = [name for names, _ in transformers_names(CONFIG).values() for name in names]
    assert len(used) == len(set(used))


def test_keys_get_a_bias_of_zero() -> None:
    """Whisper's key projections have none."""
    rules = transformers_names(CONFIG)
    names, make = rules["decoder.layers.1.attention.qkv.bias"]
    assert make(torch.ones(2), torch.ones(2) * 2).tolist() == [1, 1, 0, 0, 2, 2]
    assert [name.rsplit(".", 2)[-2] for name in names] == ["q_proj", "v_proj"]
    _, make = rules["decoder.layers.1.cross.kv.bias"]
    assert make(torch.ones(2)).tolist() == [0, 0, 1, 1]


def test_missing_and_unknown_names_are_listed() -> None:
    rules: dict[str, Rule] = {"ours": (("theirs",), lambda tensor: tensor)}
    with pytest.raises(ValueError, match=r"missing tensors .'theirs'., unknown tensors .'other'."):
        apply_rules({"other": torch.ones(1)}, rules)


def test_layers_are_counted() -> None:
    assert (count_layers(WEIGHTS, "encoder"), count_layers(WEIGHTS, "decoder")) == (2, 2)
