"""Finals that come in any order leave in the order of their utterances, and answers to flushes behind them."""

from typing import Generic, TypeVar

from streaming.protocol import Flushed

M = TypeVar("M")


class ReorderBuffer(Generic[M]):
    """One session's. `released`: finals that have left, which is the number of the next to leave."""

    def __init__(self) -> None:
        self.released = 0
        self._early: dict[int, list[M]] = {}  # here, but an earlier one is not
        self._flushes: dict[int, Flushed] = {}  # answered once so many finals have left

    def flush(self, utterances: int, flushed: Flushed) -> list[M | Flushed]:
        """Answer a flush behind the finals of the first `utterances`; a later one takes its place."""
        self._flushes[utterances] = flushed
        return self._answer()

    def settle(self, utterance: int, messages: list[M]) -> list[M | Flushed]:
        """Take the final of `utterance` and what belongs to it; what may leave now."""
        self._early[utterance] = messages
        outputs: list[M | Flushed] = []
        while self.released in self._early:
            outputs += self._early.pop(self.released)
            self.released += 1
            outputs += self._answer()
        return outputs

    def _answer(self) -> list[M | Flushed]:
        flushed = self._flushes.pop(self.released, None)
        return [] if flushed is None else [flushed]
