"""Acceptance of proposals: α, τ and the rounds that greedy decoding takes with them."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Score:
    """Rounds of one transcript, or of many (Whisper-Flash A.1).

    Each round has counts of candidates, of accepted ones, and of emitted tokens: one more than accepted,
    unless an end of transcript was. The prefill and its token do not count.
    """

    proposed: tuple[int, ...]
    accepted: tuple[int, ...]
    emitted: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens emitted in all rounds."""
        return sum(self.emitted)

    @property
    def rounds(self) -> int:
        """Passes of the target."""
        return len(self.accepted)

    @property
    def tau(self) -> float:
        """Tokens a round."""
        return self.tokens / max(1, self.rounds)

    @property
    def alpha(self) -> float:
        """Share of proposals accepted."""
        return sum(self.accepted) / max(1, sum(self.proposed))

    def acceptance(self, positions: int) -> tuple[float, ...]:
        """Share of candidates accepted at each of the first positions, given those before it.

        Candidates behind an accepted end of transcript do not count.
        """
        shares = []
        for n in range(positions):
            verified = sum(count > n for count in self.emitted)
            shares.append(sum(count > n for count in self.accepted) / max(1, verified))
        return tuple(shares)


def combined(scores: Iterable[Score]) -> Score:
    """The rounds of all `scores` as one score."""
    each = list(scores)
    return Score(
        tuple(count for score in each for count in score.proposed),
        tuple(count for score in each for count in score.accepted),
        tuple(count for score in each for count in score.emitted),
    )


def walk(matches: Tensor) -> Score:
    """The rounds behind the prefill.

    matches: bool [n, block], whether each candidate is the target's token, for the anchors at the first,
    second … emitted token.
    """
    prefixes = matches.long().cumprod(1).sum(1).tolist()
    accepted, emitted = list[int](), list[int]()
    while (anchor := sum(emitted)) < len(prefixes):
        accepted.append(int(prefixes[anchor]))
        # An accepted end of transcript has no bonus token.
        emitted.append(min(accepted[-1] + 1, len(prefixes) - anchor))
    return Score((matches.shape[1],) * len(accepted), tuple(accepted), tuple(emitted))
