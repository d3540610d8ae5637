"""A known text as draft: its tokens are verified as point masses. No tensors here."""

from collections.abc import Sequence

import numpy as np


class PreviousText:
    """A whole text as draft: mostly the hypothesis before. Satisfies `model.drafting.interface.Proposer`.

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
