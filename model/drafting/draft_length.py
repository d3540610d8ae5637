"""Draft length: how many candidates a round has, by recent acceptance and measured times.

A block of k candidates pays when its expected tokens per second, drafting and verifying included,
exceed those of a plain pass. Times are measured at start-up on the machine at hand; acceptance is
learned position by position while decoding. Pure arithmetic without a clock.
"""

from collections.abc import Mapping, Sequence

_DECAY = 0.98  # weight of the past: about the last fifty rounds count
_PRIOR = 32.0  # proposals that the acceptance shipped with the drafter counts for
# Share of a plain pass that probes of a block that does not pay may cost a round on average.
_PROBE_COST = 0.025


class DraftLength:
    """Chooses k for each batch size.

    verify: seconds of a target pass, by rows and by k, k = 0 included. draft: seconds of drafting, by
    rows and by k. acceptance: expected share of accepted candidates at each position, given that all
    before were accepted, as measured when the drafter was trained.
    """

    def __init__(
        self,
        verify: Mapping[int, Mapping[int, float]],
        draft: Mapping[int, Mapping[int, float]],
        acceptance: Sequence[float],
    ) -> None:
        self._verify = verify
        self._draft = draft
        self._judged = [_PRIOR] * len(acceptance)
        self._kept = [_PRIOR * share for share in acceptance]
        self._since_probe = 0

    def choose(self, rows: int) -> int:
        """Candidates for a round of `rows` rows; 0 is a plain pass without drafting."""
        rows = self._measured(rows)
        times = self._verify[rows]
        best = max(times, key=lambda k: self._tokens(k) / self._seconds(rows, k))
        if best:
            self._since_probe = 0
            return best
        # A probe: the smallest block, to learn whether acceptance has risen.
        least = min(k for k in times if k)
        plain = self._seconds(rows, 0)
        self._since_probe += 1
        if self._since_probe * _PROBE_COST * plain < self._seconds(rows, least) - plain:
            return 0
        self._since_probe = 0
        return least

    def learn(self, proposed: int, accepted: int) -> None:
        """Learn from one sequence's outcome of one drafted round."""
        for position in range(min(proposed, accepted + 1)):
            self._judged[position] = self._judged[position] * _DECAY + 1.0
            kept = 1.0 if position < accepted else 0.0
            self._kept[position] = self._kept[position] * _DECAY + kept

    def _measured(self, rows: int) -> int:
        """The smallest measured batch size that is not below `rows`."""
        return min(measured for measured in self._verify if measured >= rows)

    def _tokens(self, k: int) -> float:
        """Expected tokens of a round: the accepted prefix, and one of the target's own."""
        tokens, alive = 1.0, 1.0
        for kept, judged in zip(self._kept[:k], self._judged[:k], strict=True):
            alive *= kept / judged
            tokens += alive
        return tokens

    def _seconds(self, rows: int, k: int) -> float:
        return self._verify[rows][k] + (self._draft[rows][k] if k else 0.0)
