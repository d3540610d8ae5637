"""Who proposes, on the host: texts whose tokens are verified as point masses.

A proposer belongs to one request. It sees what was emitted and names the tokens that may follow;
nothing it says can change the transcript, only how many target passes it takes. No tensors here.
"""

import random
from collections.abc import Sequence
from typing import Protocol

import numpy as np

_BROKEN = 2  # tokens at the end of a hypothesis that more audio mostly changes


class Proposer(Protocol):
    """Proposes what follows in one transcript."""

    def emit(self, tokens: Sequence[int]) -> None:
        """Take what the target has emitted since the last call."""
        ...

    def propose(self, limit: int) -> list[int]:
        """At most `limit` tokens that may come next; none where it has nothing to say."""
        ...


class Reuse:
    """A whole text as draft: the hypothesis before, or another reading of the same audio.

    After each emitted token the draft is aligned anew: the place to go on from is where the edit
    distance between the transcript so far and the draft's beginning is least; of equals the one
    nearest to as many tokens as were emitted. While the two agree that is simply the next token.

    One miss is a repaired word. A draft that fits nowhere says nothing for 1, 3, 7 … rounds after
    the next misses: it must not slow its row down.
    """

    def __init__(self, draft: Sequence[int]) -> None:
        self._draft = np.asarray(draft, np.int64)
        self._steps = np.arange(len(draft) + 1)
        # Edit distance of the transcript so far to each beginning of the draft.
        self._distances = self._steps.copy()
        self._emitted = 0
        self._said: list[int] = []  # proposed since
        self._misses = self._rest = 0

    def emit(self, tokens: Sequence[int]) -> None:
        """One row of the edit distance's table for each token."""
        if self._said:
            self._misses = 0 if tokens[0] == self._said[0] else self._misses + 1
            self._rest = 2 ** max(self._misses - 1, 0) - 1
            self._said = []
        for token in tokens:
            before = self._distances
            row = before + 1  # the token is an insertion
            row[1:] = np.minimum(row[1:], before[:-1] + (self._draft != token))
            # Deletions run along the row: least over k <= j of row[k] + (j - k).
            self._distances = np.minimum.accumulate(row - self._steps) + self._steps
            self._emitted += 1

    def propose(self, limit: int) -> list[int]:
        """The draft from the best-aligned place on."""
        if self._rest:
            self._rest -= 1
            return []
        best = np.flatnonzero(self._distances == self._distances.min())
        place = int(best[np.abs(best - self._emitted).argmin()])
        self._said = [int(token) for token in self._draft[place : place + limit]]
        return self._said


def spliced(previous: Sequence[int], reading: Sequence[int], eot: int) -> list[int]:
    """What was said of the audio so far, and behind it what a reading of more audio goes on with.

    The last tokens of `previous` are the reading's to say: there the audio broke off.
    """
    kept = [token for token in previous if token != eot][:-_BROKEN]
    behind = Reuse(reading)
    behind.emit(kept)
    return kept + behind.propose(len(reading))


class Simulated:
    """A drafter that is only pretended, for benchmarks: it knows the truth and errs at a set rate.

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
