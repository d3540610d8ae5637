"""What proposals are worth: the rounds that greedy decoding would take with them. Pure arithmetic."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Score:
    """Rounds of one transcript, or of many (Whisper-Flash A.1).

    Round by round: candidates, those accepted, and the tokens emitted: one more, but where an end of
    transcript was accepted. The rounds begin behind the prefill, whose token is none of these.
    """

    proposed: tuple[int, ...]
    accepted: tuple[int, ...]
    emitted: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Emitted in all rounds."""
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

        What lies behind an accepted end counts nowhere.
        """
        shares = []
        for n in range(positions):
            judged = sum(count > n for count in self.emitted)
            shares.append(sum(count > n for count in self.accepted) / max(1, judged))
        return tuple(shares)


def together(scores: Iterable[Score]) -> Score:
    """Many walks as one."""
    each = list(scores)
    return Score(
        tuple(count for score in each for count in score.proposed),
        tuple(count for score in each for count in score.accepted),
        tuple(count for score in each for count in score.emitted),
    )


def walk(matches: Tensor) -> Score:
    """The rounds behind the prefill, from what every anchor's block is worth.

    matches: bool [n, block], of the anchors at the first, second … emitted token.
    """
    prefixes = matches.long().cumprod(1).sum(1).tolist()
    accepted, emitted = list[int](), list[int]()
    while (place := sum(emitted)) < len(prefixes):
        accepted.append(int(prefixes[place]))
        # Nothing lies behind the end: there an accepted end of transcript has no bonus.
        emitted.append(min(accepted[-1] + 1, len(prefixes) - place))
    return Score((matches.shape[1],) * len(accepted), tuple(accepted), tuple(emitted))
