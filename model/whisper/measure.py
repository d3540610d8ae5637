"""Wall times for start-up choices and benchmarks; the only file of model/ that reads a clock."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result of `work`, and the seconds that it took, those of a CUDA device included."""
    _synchronise()
    began = time.perf_counter()
    result = work()
    _synchronise()
    return result, time.perf_counter() - began


def median_seconds(work: Callable[[], object], *, repeats: int = 5, warm_ups: int = 2) -> float:
    """Median seconds of `repeats` calls of `work`, after `warm_ups` calls that do not count."""
    for _ in range(warm_ups):
        work()
    return statistics.median(timed(work)[1] for _ in range(repeats))


def least_seconds(works: Sequence[Callable[[], object]], *, rounds: int = 7) -> list[float]:
    """Least seconds of each of `works`, called in turn; a first round does not count.

    For choices that must come out alike on a busy machine and on an idle one.
    """
    for work in works:
        work()
    turns = [[timed(work)[1] for work in works] for _ in range(rounds)]
    return [min(times) for times in zip(*turns, strict=True)]


def _synchronise() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
