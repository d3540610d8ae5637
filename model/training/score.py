"""What proposals are worth: the rounds that greedy decoding would take with them. Pure arithmetic."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Score:
    """Rounds of one transcript, or of many (Whisper-Flash A.1).

    tokens: emitted in all of them. accepted, proposed: candidates, round by round. A drafter's rounds
    begin behind the prefill, whose one token is none of these; a reading's with the prefill, which
    verifies it.
    """

    tokens: int
    accepted: tuple[int, ...]
    proposed: tuple[int, ...]

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
        """Share of candidates accepted at each of the first positions, given those before it."""
        reached = [sum(count >= n for count in self.accepted) for n in range(positions + 1)]
        return tuple(reached[n + 1] / max(1, reached[n]) for n in range(positions))


def together(scores: Iterable[Score]) -> Score:
    """Many walks as one."""
    each = list(scores)
    return Score(
        tokens=sum(score.tokens for score in each),
        accepted=tuple(count for score in each for count in score.accepted),
        proposed=tuple(count for score in each for count in score.proposed),
    )


def walk(matches: Tensor) -> Score:
    """The rounds behind the prefill, from what every anchor's block is worth.

    matches: bool [n, block], of the anchors at the first, second … emitted token.
    """
    prefixes = matches.long().cumprod(1).sum(1).tolist()
    place, accepted = 0, []
    while place < len(prefixes):
        accepted.append(int(prefixes[place]))
        # Nothing lies behind the end: there an accepted end of transcript has no bonus.
        place += min(accepted[-1] + 1, len(prefixes) - place)
    return Score(len(prefixes), tuple(accepted), (matches.shape[1],) * len(accepted))
