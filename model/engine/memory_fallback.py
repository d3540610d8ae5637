"""Fallback for exhausted device memory: smaller batches, then no drafter, at last a failed request.

Running sequences go on in each case.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from model.engine.requests import Failure, Request
from model.engine.runner import Runner
from model.engine.sequence import Sequence

B = TypeVar("B")  # a computed batch
T = TypeVar("T")


class MemoryFallback:
    """Runs batches, and retries them with less memory.

    slots: most sequences of a round, and of the engine. It falls, and never rises.
    """

    def __init__(self, runner: Runner, slots: int) -> None:
        self.slots = slots
        self._runner = runner

    def prefill(
        self, requests: list[Request], sequences: list[Sequence], run: Callable[[list[Request]], B]
    ) -> Iterator[B | Failure]:
        """Prefill `requests`; when memory runs out, in halves, then without the drafter.

        run: prefills some of them. The caller adds its batch to the running `sequences` before it takes
        the next one. A request that does not fit alone is a Failure; `slots` falls to what runs.
        """
        batch = _attempt(run, requests)
        if batch is not None:
            yield batch
        elif len(requests) > 1:
            half = len(requests) // 2
            yield from self.prefill(requests[:half], sequences, run)
            yield from self.prefill(requests[half:], sequences, run)
        elif self._runner.give_up_drafter():
            yield from self.prefill(requests, sequences, run)
        else:
            self.slots = self._runner.sizes.fitting(max(len(sequences), 1))
            yield _failure(requests[0])

    def round(self, sequences: list[Sequence], run: Callable[[list[Sequence]], B]) -> B | Failure:
        """Run a round; when memory runs out, with half the slots from now on, then without the drafter.

        Sequences behind the first `slots` wait until others have finished. A first sequence that does
        not fit alone is a Failure.
        """
        while (batch := _attempt(run, sequences[: self.slots])) is None:
            count = min(self.slots, len(sequences))
            if count > 1:
                self.slots = self._runner.sizes.fitting(count // 2)
            elif not self._runner.give_up_drafter():
                return _failure(sequences[0].request)
        return batch


def _failure(request: Request) -> Failure:
    return Failure(request, "the device's memory is exhausted")


def _attempt(run: Callable[[list[T]], B], items: list[T]) -> B | None:
    """The batch; None when memory runs out. The caught exception frees the failed batch's memory."""
    try:
        return run(items)
    except torch.OutOfMemoryError:
        return None
