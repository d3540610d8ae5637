"""Who proposes, on the host: texts whose tokens are verified as point masses.

A proposer belongs to one request. It sees what was emitted and names the tokens that may follow;
nothing it says can change the transcript, only how many target passes it takes. No tensors here.
"""

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


class PreviousText:
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
    behind = PreviousText(reading)
    behind.emit(kept)
    return kept + behind.propose(len(reading))
