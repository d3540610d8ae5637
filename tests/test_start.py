import logging
from pathlib import Path

import pytest
import torch

from model import start as starting
from model import trained
from model.load import ModelError, load
from model.start import start
from model.trained import save_drafter
from tests.test_drafter import network
from tests.test_load import save_transformers


def test_an_engine_from_a_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Named like its directory; threads are set, and the log says what memory it takes."""
    before = torch.get_num_threads()
    with caplog.at_level(logging.INFO, logger="model"):
        engine = start(str(save_transformers(tmp_path)), device="cpu", threads=1, slots=2)
    assert "MiB for 2 slots, in float32 on cpu" in caplog.text
    assert (engine.name, engine.slots, engine.drafter) == (tmp_path.name, 2, None)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_missing_device_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no CUDA device can be used here"):
        start(str(save_transformers(tmp_path)), device="cuda")


def test_caches_that_do_not_fit_are_refused_with_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_free_bytes", lambda _: 1000)
    with pytest.raises(
        ModelError, match=r"needs 0 MiB .* 8 MiB for 96 slots, and 0 MiB are free: take fewer"
    ):
        start(str(save_transformers(tmp_path)), device="cpu", slots=96)


def test_a_drafter_is_taken_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by its file; or the bundled one, of its own accord, unless none is wanted."""
    model = str(save_transformers(tmp_path))
    file = tmp_path / "drafters" / "swift.safetensors"
    file.parent.mkdir()
    save_drafter(file, network(), target=load(model).fingerprint, acceptance=[0.5] * 4)
    assert start(model, device="cpu", slots=1).drafter is None
    assert start(model, device="cpu", slots=1, drafter=str(file)).drafter == "swift"
    monkeypatch.setattr(trained, "BUNDLED", file.parent)
    assert start(model, device="cpu", slots=1).drafter == "swift"
    assert start(model, device="cpu", slots=1, drafter="none").drafter is None


def test_another_models_drafter_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "swift.safetensors"
    save_drafter(file, network(), target="another", acceptance=[0.5] * 4)
    with pytest.raises(ModelError, match="was made for another target"):
        start(str(save_transformers(tmp_path)), device="cpu", drafter=str(file))


def test_a_missing_drafter_is_an_error(tmp_path: Path) -> None:
    """Never a silent start without it."""
    with pytest.raises(ModelError, match="cannot be read"):
        start(str(save_transformers(tmp_path)), device="cpu", drafter=str(tmp_path / "none"))
