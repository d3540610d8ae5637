import pytest
import torch

from model.checkpoints.tensor_names import Rule, apply_rules, transformers_names
from tests.support.tiny import tiny_config


def test_keys_get_a_bias_of_zero() -> None:
    """Whisper's key projections have none. What else the rules make is tested with `load`."""
    rules = transformers_names(tiny_config())
    names, make = rules["decoder.layers.1.attention.qkv.bias"]
    assert make(torch.ones(2), torch.ones(2) * 2).tolist() == [1, 1, 0, 0, 2, 2]
    assert [name.rsplit(".", 2)[-2] for name in names] == ["q_proj", "v_proj"]
    _, make = rules["decoder.layers.1.cross.kv.bias"]
    assert make(torch.ones(2)).tolist() == [0, 0, 1, 1]


def test_missing_and_unknown_names_are_listed() -> None:
    rules: dict[str, Rule] = {"ours": (("theirs",), lambda tensor: tensor)}
    with pytest.raises(ValueError, match=r"missing tensors .'theirs'., unknown tensors .'other'."):
        apply_rules({"other": torch.ones(1)}, rules)
