import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.checkpoints.ctranslate2 import read_ctranslate2
from tests.support.tiny_files import model_bin


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_floats_come_back_as_stored(dtype: torch.dtype) -> None:
    tensor = torch.randn(3, 4).to(dtype)
    got = read_ctranslate2(memoryview(model_bin({"a": tensor, "odd": tensor[0, :1]})))
    assert torch.equal(got["a"], tensor)
    assert torch.equal(got["odd"], tensor[0, :1])
    assert got["a"].dtype == dtype


@pytest.mark.parametrize("kind", [torch.int8, torch.int16])
def test_integer_matrices_are_dequantised(kind: torch.dtype) -> None:
    """Weight ≈ stored / scale, row by row (int8) or as a whole (int16)."""
    weight = torch.randn(5, 7)
    most = torch.iinfo(kind).max
    scale = most / weight.abs().amax(1) if kind == torch.int8 else most / weight.abs().max()
    stored = (weight * scale.reshape(-1, 1)).round().to(kind)
    got = read_ctranslate2(memoryview(model_bin({"w": stored, "w_scale": scale})))
    assert set(got) == {"w"}
    assert (got["w"] - weight).abs().max() <= 0.51 / scale.min()


def test_facts_of_the_architecture_are_left_out() -> None:
    variables = {"decoder/pre_norm": torch.tensor(1, dtype=torch.int8), "w": torch.ones(1)}
    assert set(read_ctranslate2(memoryview(model_bin(variables)))) == {"w"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (model_bin({}, version=5), "format version 5"),
        (model_bin({}, spec="TransformerSpec"), "not a WhisperSpec"),
        (model_bin({}, aliases=(("x", "y"),)), "aliases x to y"),
        (model_bin({"w": torch.ones(2)})[:40], "cut short"),
        (b"", "cut short"),
    ],
)
def test_what_is_no_whisper_is_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_ctranslate2(memoryview(data))


@given(st.integers(0, 400), st.binary(max_size=3))
def test_damage_never_raises_anything_else(cut: int, patch: bytes) -> None:
    """A file cut anywhere, or with bytes changed, is read or refused with ValueError."""
    whole = model_bin({"a": torch.ones(3, 4), "b": torch.ones(2)})
    damaged = whole[:cut] + patch + whole[cut + len(patch) :]
    try:
        read_ctranslate2(memoryview(damaged))
    except ValueError as error:
        assert str(error)  # noqa: PT017  (either outcome is right; another exception is not)
