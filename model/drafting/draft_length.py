"""How many candidates a round should have: what pays by recent experience.

A block of k candidates pays when the tokens it is expected to emit, for the time that drafting and
verifying it takes, beat one token for a plain pass. Times are measured at start-up on the machine at
hand; acceptance is learned position by position while decoding. Pure arithmetic: no clock here.
"""

from collections.abc import Mapping, Sequence

_MEMORY = 0.98  # weight of the past: about the last fifty rounds count
_HOPE = 32.0  # proposals' worth of belief in the acceptance that the drafter was shipped with
# Of a plain pass: what tries of a block that does not pay may cost a round on average.
_LOSS = 0.025


class DraftLength:
    """Chooses k for each number of rows.

    verify: seconds of a target pass, by rows and by k, k = 0 included. draft: seconds that drafting
    takes, by rows and by k. acceptance: expected share of accepted candidates at each position,
    given that all before were accepted: what was measured when the drafter was trained.
    """

    def __init__(
        self,
        verify: Mapping[int, Mapping[int, float]],
        draft: Mapping[int, Mapping[int, float]],
        acceptance: Sequence[float],
    ) -> None:
        self._verify = verify
        self._draft = draft
        self._reached = [_HOPE] * len(acceptance)
        self._kept = [_HOPE * share for share in acceptance]
        self._since_probe = 0

    def choose(self, rows: int) -> int:
        """Candidates for a round of `rows` rows; 0 is a plain pass without drafting."""
        rows = self._measured(rows)
        times = self._verify[rows]
        best = max(times, key=lambda k: self._tokens(k) / self._seconds(rows, k))
        if best:
            self._since_probe = 0
            return best
        # The least block, to learn whether the drafter has got better at what is being said.
        least = min(k for k in times if k)
        plain = self._seconds(rows, 0)
        self._since_probe += 1
        if self._since_probe * _LOSS * plain < self._seconds(rows, least) - plain:
            return 0
        self._since_probe = 0
        return least

    def learn(self, proposed: int, accepted: int) -> None:
        """Take one row's outcome of one drafted round."""
        for position in range(min(proposed, accepted + 1)):
            self._reached[position] = self._reached[position] * _MEMORY + 1.0
            kept = 1.0 if position < accepted else 0.0
            self._kept[position] = self._kept[position] * _MEMORY + kept

    def _measured(self, rows: int) -> int:
        """The least number of rows measured that is not below these."""
        return min(measured for measured in self._verify if measured >= rows)

    def _tokens(self, k: int) -> float:
        """Expected tokens of a round: one of the target's own, and the accepted prefix."""
        tokens, alive = 1.0, 1.0
        for kept, reached in zip(self._kept[:k], self._reached[:k], strict=True):
            alive *= kept / reached
            tokens += alive
        return tokens

    def _seconds(self, rows: int, k: int) -> float:
        return self._verify[rows][k] + (self._draft[rows][k] if k else 0.0)
