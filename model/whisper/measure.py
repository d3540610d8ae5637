"""Wall times, for start-up choices and benchmarks: the one place here that reads a clock."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What `work` returns, and the seconds that it took.

    Work that a CUDA device has been given is waited for.
    """
    _synchronise()
    began = time.perf_counter()
    result = work()
    _synchronise()
    return result, time.perf_counter() - began


def median_seconds(work: Callable[[], object], *, repeats: int = 5, warm_ups: int = 2) -> float:
    """How long `work` takes: the median of `repeats` calls after `warm_ups` uncounted ones."""
    for _ in range(warm_ups):
        work()
    return statistics.median(timed(work)[1] for _ in range(repeats))


def least_seconds(works: Sequence[Callable[[], object]], *, rounds: int = 7) -> list[float]:
    """The least that each of `works` takes; they take turns, and a first round is not counted.

    For choices that must come out alike on a busy machine and on an idle one.
    """
    for work in works:
        work()
    turns = [[timed(work)[1] for work in works] for _ in range(rounds)]
    return [min(times) for times in zip(*turns, strict=True)]


def _synchronise() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
