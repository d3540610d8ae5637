"""What an engine gives up, step by step, when the device's memory runs out.

First the size of batches, then the drafter; last of all a request. What runs goes on.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from model.engine.requests import Failure, Request
from model.engine.runner import Runner
from model.engine.sequence import Sequence

B = TypeVar("B")  # a batch that was computed
T = TypeVar("T")


class MemoryFallback:
    """Runs batches, and retries them with less.

    slots: how many rows a round may have, and the engine may hold. It falls.
    """

    def __init__(self, runner: Runner, slots: int) -> None:
        self.slots = slots
        self._runner = runner

    def prefill(
        self, requests: list[Request], rows: list[Sequence], run: Callable[[list[Request]], B]
    ) -> Iterator[B | Failure]:
        """Prefill `requests`; when memory runs out first in halves, then without the drafter.

        run: prefills some of them. Its batch must be added to the running `rows` before the next
        one is asked for. A request that does not fit alone is a Failure; then nothing is added any
        more.
        """
        batch = _attempt(run, requests)
        if batch is not None:
            yield batch
        elif len(requests) > 1:
            half = len(requests) // 2
            yield from self.prefill(requests[:half], rows, run)
            yield from self.prefill(requests[half:], rows, run)
        elif self._runner.give_up_drafter():
            yield from self.prefill(requests, rows, run)
        else:
            self.slots = self._runner.sizes.fitting(max(len(rows), 1))
            yield _failure(requests[0])

    def round(self, rows: list[Sequence], run: Callable[[list[Sequence]], B]) -> B | Failure:
        """Run a round; when memory runs out, of half the rows from now on, then without the drafter.

        Rows behind the first `slots` wait until others have finished: nothing is lost. A first row
        that does not fit alone is a Failure.
        """
        while (batch := _attempt(run, rows[: self.slots])) is None:
            count = min(self.slots, len(rows))
            if count > 1:
                self.slots = self._runner.sizes.fitting(count // 2)
            elif not self._runner.give_up_drafter():
                return _failure(rows[0].request)
        return batch


def _failure(request: Request) -> Failure:
    return Failure(request, "the device's memory is exhausted")


def _attempt(run: Callable[[list[T]], B], items: list[T]) -> B | None:
    """None when memory runs out: behind the exception the memory of what failed is free again."""
    try:
        return run(items)
    except torch.OutOfMemoryError:
        return None
