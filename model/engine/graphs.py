"""One switch between calling a phase and replaying its captured graph.

On CUDA each combination of shapes and constants is captured once, largest first, from one memory
pool, and replayed from then on: one launch instead of hundreds. Anywhere else, or with
CAPTIOND_EAGER=1 in the environment, the same functions are called directly.
A phase to capture reads nothing back to the host and has no shape that depends on data.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

_WARM_UPS = 2  # runs before capture, in which libraries choose kernels and allocate workspaces


@dataclass(frozen=True, slots=True)
class PhaseInputs:
    """A phase's inputs: tensors, and constants that are part of the graph's shape."""

    def tensors(self) -> dict[str, Tensor]:
        """The fields that a replay copies, by name."""
        return {name: value for name, value in self._values() if isinstance(value, Tensor)}

    def shape(self) -> tuple[object, ...]:
        """A graph's key: the shapes and dtypes of tensors, and the constants."""
        return tuple(
            (name, value.shape, value.dtype) if isinstance(value, Tensor) else (name, value)
            for name, value in self._values()
        )

    def _values(self) -> list[tuple[str, Tensor | int]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


I = TypeVar("I", bound=PhaseInputs)  # noqa: E741  (inputs of a phase, and O its output)
O = TypeVar("O")  # noqa: E741


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]
    output: object


class Graphs:
    """The captured phases of one engine. Their tensors are static: read a result before the next call.

    Calls are direct at first. Between `begin` and `seal` each new combination of shapes and constants
    is captured, which runs the phase three times, so the slots must be empty. From then on known
    combinations are replayed; an unknown one raises RuntimeError, which names the shape to warm up.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._possible = device.type == "cuda" and os.environ.get("CAPTIOND_EAGER") != "1"
        self._captured: dict[tuple[object, ...], _Captured] = {}
        self._pool: Any = None
        self._stage: Literal["direct", "capturing", "sealed"] = "direct"

    def __len__(self) -> int:
        return len(self._captured)

    def begin(self) -> None:
        """Capture the calls from now on, where the device can."""
        if self._possible:
            self._pool = torch.cuda.graph_pool_handle()
            self._stage = "capturing"

    def seal(self) -> None:
        """Capture nothing more: warm-up has called every combination."""
        if self._possible:
            self._stage = "sealed"

    def forget(self) -> None:
        """Drop all graphs and call directly from now on."""
        self._possible = False
        self._stage = "direct"
        self._captured.clear()

    def call(self, phase: Callable[[I], O], inputs: I) -> O:
        """Run `phase(inputs)`, or replay it."""
        if self._stage == "direct":
            return phase(inputs)
        key = (phase.__name__, inputs.shape())
        captured = self._captured.get(key)
        if captured is None:
            if self._stage == "sealed":
                raise RuntimeError(
                    f"{phase.__name__} was not captured for {inputs.shape()}: add it to "
                    "the engine's warm-up, or set CAPTIOND_EAGER=1"
                )
            captured = self._captured[key] = self._capture(phase, inputs)
        for name, tensor in inputs.tensors().items():
            captured.inputs[name].copy_(tensor)
        captured.graph.replay()
        return cast("O", captured.output)  # the key names the phase

    def _capture(self, phase: Callable[[I], O], inputs: I) -> _Captured:
        buffers = {
            name: tensor.to(self._device, copy=True) for name, tensor in inputs.tensors().items()
        }
        static = replace(inputs, **buffers)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                phase(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            output = phase(static)
        return _Captured(graph, buffers, output)
