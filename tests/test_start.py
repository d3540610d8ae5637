import logging
from pathlib import Path

import pytest
import torch

from model import start as starting
from model.load import ModelError
from model.start import start
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


def test_a_missing_drafter_is_an_error(tmp_path: Path) -> None:
    """Never a silent start without it."""
    with pytest.raises(ModelError, match="cannot be read"):
        start(str(save_transformers(tmp_path)), device="cpu", drafter=str(tmp_path / "none"))
