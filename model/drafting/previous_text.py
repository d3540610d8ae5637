"""A known text as draft: its tokens are verified as point masses. It uses no tensors."""

from collections.abc import Sequence

import numpy as np


class PreviousText:
    """Proposes a known text, mostly the hypothesis before. A `model.drafting.interface.Proposer`.

    Each emitted token aligns the draft anew: proposals continue from the place at which the edit
    distance between the transcript so far and the draft's beginning is least; among equals, from the
    place nearest to the number of tokens emitted. While the two agree that is the next token.

    One miss is a corrected word. After the next misses the proposer pauses for 1, 3, 7 … rounds: a
    draft that fits nowhere must not slow its sequence down.
    """

    def __init__(self, draft: Sequence[int]) -> None:
        self._draft = np.asarray(draft, np.int64)
        self._steps = np.arange(len(draft) + 1)
        # [draft + 1], the edit distance of the transcript so far to each beginning of the draft.
        self._distances = self._steps.copy()
        self._emitted = 0
        self._proposed: list[int] = []  # since the last `observe`
        self._misses = self._pause = 0

    def observe(self, tokens: Sequence[int]) -> None:
        """Add a row to the edit distance's table for each token."""
        if self._proposed:
            self._misses = 0 if tokens[0] == self._proposed[0] else self._misses + 1
            self._pause = 2 ** max(self._misses - 1, 0) - 1
            self._proposed = []
        for token in tokens:
            before = self._distances
            row = before + 1  # the token is an insertion
            row[1:] = np.minimum(row[1:], before[:-1] + (self._draft != token))
            # Deletions run along the row: least over k <= j of row[k] + (j - k).
            self._distances = np.minimum.accumulate(row - self._steps) + self._steps
            self._emitted += 1

    def propose(self, limit: int) -> list[int]:
        """At most `limit` tokens of the draft, from the best-aligned place on."""
        if self._pause:
            self._pause -= 1
            return []
        best = np.flatnonzero(self._distances == self._distances.min())
        place = int(best[np.abs(best - self._emitted).argmin()])
        self._proposed = [int(token) for token in self._draft[place : place + limit]]
        return self._proposed
