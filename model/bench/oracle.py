"""A simulated drafter of known quality, for benchmarks."""

import random
from collections.abc import Sequence


class SimulatedDrafter:
    """A `Proposer` that knows the reference tokens and errs at a set rate.

    Its blocks are full, and each token is right with probability `chance`. Like a network it proposes
    nothing before the first token, and does not know where the transcript ends.
    """

    def __init__(self, reference: Sequence[int], chance: float, block: int, seed: int = 0) -> None:
        self._reference = reference
        self._chance = chance
        self._block = block
        self._random = random.Random(seed)  # noqa: S311  (no secret depends on it)
        self._done = 0

    def observe(self, tokens: Sequence[int]) -> None:
        """Count the emitted tokens; they are those of the reference."""
        self._done += len(tokens)

    def propose(self, limit: int) -> list[int]:
        """The next tokens, some of them wrong; zeros behind the end."""
        if not self._done:
            return []
        size = min(limit, self._block)
        block = []
        for token in self._reference[self._done : self._done + size]:
            right = self._random.random() < self._chance
            block.append(token if right else int(token == 0))
        return block + [0] * (size - len(block))


def chance_for(share: float, block: int) -> float:
    """The probability that a token is right, at which `share` (0 … 1) of a block's tokens is accepted.

    With probability p a block of k tokens has p + p² + … + p^k accepted ones on average.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        accepted = sum(middle**n for n in range(1, block + 1)) / block
        low, high = (middle, high) if accepted < share else (low, middle)
    return high
