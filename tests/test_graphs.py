from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from model.engine.graphs import Graphs, PhaseInputs

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")


@dataclass(frozen=True, slots=True)
class ScaleInputs(PhaseInputs):
    x: Tensor
    by: int


def scale(inputs: ScaleInputs) -> Tensor:
    """A phase."""
    return inputs.x * inputs.by


def test_on_the_cpu_phases_are_called_directly() -> None:
    graphs = Graphs(torch.device("cpu"))
    graphs.begin()
    graphs.seal()
    assert graphs.call(scale, ScaleInputs(torch.ones(2), by=3)).tolist() == [3.0, 3.0]
    assert len(graphs) == 0


def test_inputs_are_tensors_and_constants() -> None:
    """Tensors are what a replay copies; the shape tells graphs apart, and is the same for other values."""
    inputs = ScaleInputs(torch.ones(2), by=3)
    assert list(inputs.tensors()) == ["x"]
    assert inputs.shape() == ScaleInputs(torch.zeros(2), by=3).shape()
    others = (
        ScaleInputs(torch.ones(3), by=3),
        ScaleInputs(torch.ones(2, dtype=torch.int64), by=3),
        ScaleInputs(torch.ones(2), by=4),
    )
    assert len({inputs.shape(), *(other.shape() for other in others)}) == 4


@pytest.mark.cuda
@CUDA
def test_a_graph_is_captured_once_and_replayed() -> None:
    """One graph for each combination of shapes and constants; other values, same graph."""
    device = torch.device("cuda")
    graphs = Graphs(device)
    assert graphs.call(scale, ScaleInputs(torch.ones(1, device=device), by=2)).tolist() == [2.0]
    assert len(graphs) == 0, "nothing is captured before it is wanted"
    graphs.begin()
    for value in (1.0, 2.0):
        for by in (3, 4):
            got = graphs.call(scale, ScaleInputs(torch.full((2,), value), by=by))
            assert got.tolist() == [value * by] * 2
    assert len(graphs) == 2
    graphs.seal()
    with pytest.raises(RuntimeError, match="was not captured for"):
        graphs.call(scale, ScaleInputs(torch.ones(3), by=3))
    graphs.forget()
    got = graphs.call(scale, ScaleInputs(torch.ones(3, device=device), by=3))
    assert got.tolist() == [3.0] * 3


@pytest.mark.cuda
@CUDA
def test_the_environment_turns_capture_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPTIOND_EAGER", "1")
    graphs = Graphs(torch.device("cuda"))
    graphs.begin()
    graphs.call(scale, ScaleInputs(torch.ones(1, device="cuda"), by=2))
    assert len(graphs) == 0
