import pytest
import torch
from torch import Tensor

from model.engine.graphs import Graphs

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")


def scale(x: Tensor, *, by: int) -> Tensor:
    """A phase."""
    return x * by


def test_on_the_cpu_phases_are_called_directly() -> None:
    graphs = Graphs(torch.device("cpu"))
    graphs.begin()
    graphs.seal()
    got = graphs.call(scale, {"x": torch.ones(2)}, by=3)
    assert got is not None
    assert got.tolist() == [3.0, 3.0]
    assert len(graphs) == 0


@pytest.mark.cuda
@CUDA
def test_a_graph_is_captured_once_and_replayed() -> None:
    """One graph for each combination of shapes and constants; other values, same graph."""
    device = torch.device("cuda")
    graphs = Graphs(device)
    assert graphs.call(scale, {"x": torch.ones(1, device=device)}, by=2) is not None
    assert len(graphs) == 0, "nothing is captured before it is wanted"
    graphs.begin()
    for value in (1.0, 2.0):
        for by in (3, 4):
            got = graphs.call(scale, {"x": torch.full((2,), value)}, by=by)
            assert got is not None
            assert got.tolist() == [value * by] * 2
    assert len(graphs) == 2
    graphs.seal()
    with pytest.raises(RuntimeError, match="was not captured for"):
        graphs.call(scale, {"x": torch.ones(3)}, by=3)
    graphs.forget()
    assert graphs.call(scale, {"x": torch.ones(3, device=device)}, by=3) is not None


@pytest.mark.cuda
@CUDA
def test_the_environment_turns_capture_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPTIOND_EAGER", "1")
    graphs = Graphs(torch.device("cuda"))
    graphs.begin()
    graphs.call(scale, {"x": torch.ones(1, device="cuda")}, by=2)
    assert len(graphs) == 0
