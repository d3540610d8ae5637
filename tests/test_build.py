import logging
import re
from pathlib import Path

import pytest
import torch

from model.checkpoints.load import ModelError, load
from model.drafting import drafter_files
from model.drafting.drafter_files import save_network
from model.engine import build as starting
from model.engine.build import build
from model.whisper.quantised import Precision, missing_instructions
from tests.support.tiny_drafters import tiny_parallel
from tests.support.tiny_files import save_transformers


def test_an_engine_from_a_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Named like its directory; threads are set, and the log says what memory it takes."""
    before = torch.get_num_threads()
    with caplog.at_level(logging.INFO, logger="model"):
        engine = build(str(save_transformers(tmp_path)), device="cpu", threads=1, slots=2)
    assert "MiB for 2 slots, in float32 on cpu" in caplog.text
    assert (engine.name, engine.slots, engine.drafter) == (tmp_path.name, 2, None)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


@pytest.mark.skipif(bool(missing_instructions()), reason="this CPU has no int8 to speak of")
def test_an_int8_engine(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On the CPU wherever else one could run; its caches are half as large."""
    with caplog.at_level(logging.INFO, logger="model"):
        engine = build(str(save_transformers(tmp_path)), slots=2, precision="int8")
    assert "MiB for 2 slots, in int8 on cpu" in caplog.text
    assert engine.runner.whisper.int8
    assert engine.runner.state.cache.cross_keys.dtype == torch.bfloat16


def test_int8_is_refused_where_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it lacks, and what to do instead."""
    monkeypatch.setattr(starting, "missing_instructions", lambda: ["AVX-512 BF16"])
    with pytest.raises(ModelError, match=r"needs a CPU with AVX-512 BF16 .* precision = float32"):
        build(str(save_transformers(tmp_path)), precision="int8")
    with pytest.raises(ModelError, match="is for the CPU"):
        starting.check_int8("cuda")


@pytest.mark.parametrize(
    ("device", "precision", "each"),
    [("cpu", "float32", (4, 4, 4)), ("cpu", "int8", (4, 1, 1)), ("cuda", "float32", (2, 2, 0))],
)
def test_the_memory_of_weights_is_what_they_take(
    device: str, precision: Precision, each: tuple[int, int, int]
) -> None:
    """Bytes of the embedding, of each layer's products, and of the output head beside the embedding."""
    weights = {
        "decoder.embedding.weight": torch.empty(100, 8),
        "decoder.layers.0.mlp_in.weight": torch.empty(32, 8),
        "decoder.layers.0.mlp_in.bias": torch.empty(32),
    }
    dtype = torch.float32 if device == "cpu" else torch.float16
    found = starting.weight_bytes(weights, dtype, device, precision)
    assert found == (800 + 32) * each[0] + 256 * each[1] + 800 * each[2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_missing_device_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no CUDA device can be used here"):
        build(str(save_transformers(tmp_path)), device="cuda")


def test_caches_that_do_not_fit_are_refused_with_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_free_bytes", lambda _: 1000)
    with pytest.raises(
        ModelError, match=r"needs 0 MiB .* 8 MiB for 96 slots, and 0 MiB are free: take fewer"
    ):
        build(str(save_transformers(tmp_path)), device="cpu", slots=96)


def test_a_drafter_is_taken_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by its file; or the bundled one, of its own accord, unless none is wanted."""
    model = str(save_transformers(tmp_path))
    file = tmp_path / "drafters" / "swift.safetensors"
    file.parent.mkdir()
    save_network(file, tiny_parallel(), target=load(model).fingerprint, acceptance=[0.5] * 4)
    assert build(model, device="cpu", slots=1).drafter is None
    assert build(model, device="cpu", slots=1, drafter=str(file)).drafter == "swift"
    monkeypatch.setattr(drafter_files, "BUNDLED", file.parent)
    assert build(model, device="cpu", slots=1).drafter == "swift"
    assert build(model, device="cpu", slots=1, drafter="none").drafter is None


def test_a_drafters_memory_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It has as many layers as the tiny target: twice the memory for slots."""
    model, file = str(save_transformers(tmp_path)), tmp_path / "swift.safetensors"
    save_network(file, tiny_parallel(), target=load(model).fingerprint, acceptance=[0.5] * 4)
    with caplog.at_level(logging.INFO, logger="model"):
        build(model, device="cpu", slots=96, drafter="none")
        build(model, device="cpu", slots=96, drafter=str(file))
    alone, both = (int(found) for found in re.findall(r"and (\d+) MiB for 96 slots", caplog.text))
    assert abs(both - 2 * alone) <= 1  # each is rounded


def test_another_models_drafter_or_none_at_all_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "swift.safetensors"
    save_network(file, tiny_parallel(), target="another", acceptance=[0.5] * 4)
    for named, words in ((file, "was made for another target"), ("none here", "cannot be read")):
        with pytest.raises(ModelError, match=words):
            build(str(save_transformers(tmp_path)), device="cpu", drafter=str(named))
