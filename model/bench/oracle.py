"""A drafter that is only pretended, for benchmarks: how fast would one of a known quality be? No tensors."""

import random
from collections.abc import Sequence


class Simulated:
    """It knows the truth and errs at a set rate. Satisfies `model.drafting.previous_text.Proposer`.

    Its blocks are always full, each token of them right with probability `chance`. Like a network it
    has nothing to say before the first token, and does not know where the transcript ends.
    """

    def __init__(self, truth: Sequence[int], chance: float, block: int, seed: int = 0) -> None:
        self._truth = truth
        self._chance = chance
        self._block = block
        self._random = random.Random(seed)  # noqa: S311  (no secret depends on it)
        self._done = 0

    def emit(self, tokens: Sequence[int]) -> None:
        """Only their number counts: the transcript is the truth."""
        self._done += len(tokens)

    def propose(self, limit: int) -> list[int]:
        """The next tokens, some of them wrong, and anything behind the end."""
        if not self._done:
            return []
        size = min(limit, self._block)
        block = []
        for token in self._truth[self._done : self._done + size]:
            right = self._random.random() < self._chance
            block.append(token if right else _another(token))
        return block + [0] * (size - len(block))


def _another(token: int) -> int:
    return 0 if token else 1


def chance_for(share: float, block: int) -> float:
    """The probability of each token being right for `share` of a block's tokens to be accepted.

    Of a block of k tokens p + p² + … + p^k are accepted on average. share: 0 … 1.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        accepted = sum(middle**n for n in range(1, block + 1)) / block
        low, high = (middle, high) if accepted < share else (low, middle)
    return high
