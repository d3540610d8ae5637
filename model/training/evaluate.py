"""How good a drafter is, from trajectories alone: the walk that greedy decoding would take.

The target's tokens are known, so that no target pass is needed: every anchor's block is compared
with what follows it, and the walk goes on behind what would be accepted (A.1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.load import Checkpoint
from model.trained import Trained
from model.training.packing import lookup_of, pack, possible_anchors
from model.training.student import Student
from model.training.students import student_of
from model.training.teacher import Trajectory


@dataclass(frozen=True, slots=True)
class Score:
    """acceptance: share of rounds in which each position of the block was accepted.

    tokens: emitted in all rounds; the token that the prefill emits is none of them.
    """

    rounds: int
    tokens: int
    accepted: tuple[int, ...]

    @property
    def tau(self) -> float:
        """Tokens a round."""
        return self.tokens / max(1, self.rounds)

    @property
    def alpha(self) -> float:
        """Share of proposals accepted."""
        return sum(self.accepted) / max(1, self.rounds * len(self.accepted))

    @property
    def prefix(self) -> float:
        """Mean accepted prefix."""
        return sum(self.accepted) / max(1, self.rounds)

    def acceptance(self) -> tuple[float, ...]:
        """Share of candidates accepted at each position, given those before it."""
        reached = (self.rounds, *self.accepted[:-1])
        return tuple(a / max(1, r) for a, r in zip(self.accepted, reached, strict=True))


def walk(matches: Tensor) -> tuple[int, int, list[int]]:
    """Rounds, tokens, and accepted lengths of one utterance.

    matches: bool [n, block], of the anchors at the first, second … emitted token.
    """
    prefixes = matches.long().cumprod(1).sum(1).tolist()
    place, lengths = 0, []
    while place < len(prefixes):
        accepted = int(prefixes[place])
        # Nothing lies behind the end: there an accepted end of transcript has no bonus.
        emitted = min(accepted + 1, len(prefixes) - place)
        lengths.append(accepted)
        place += emitted
    return len(lengths), len(prefixes), lengths


@torch.no_grad()
def score(
    student: Student,
    trajectories: Iterable[Trajectory],
    *,
    kept: Sequence[int],
    lookup: Tensor,
    device: torch.device,
) -> Score:
    """Walk every trajectory. kept: blocks that their features are of; lookup: see `pack`."""
    architecture = student.network.architecture
    rounds = tokens = 0
    accepted = [0] * architecture.block
    for trajectory in trajectories:
        batch = pack(
            [trajectory],
            [list(possible_anchors(trajectory))],
            kept=kept,
            wanted=architecture.taps,
            block=architecture.block,
            lookup=lookup,
        )
        count, emitted, lengths = walk(student.matches(batch.to(device))[0].cpu())
        rounds += count
        tokens += emitted
        for length in lengths:
            for position in range(length):
                accepted[position] += 1
    return Score(rounds, tokens, tuple(accepted))


def judge(
    checkpoint: Checkpoint,
    trained: Trained,
    trajectories: Iterable[Trajectory],
    *,
    kept: Sequence[int],
    device: torch.device,
) -> Score:
    """Walk every trajectory with a finished drafter, in float32."""
    student = student_of(trained.network, checkpoint).to(device).eval()
    lookup = lookup_of(trained.network.architecture.vocabulary, checkpoint.config.vocab_size)
    return score(student, trajectories, kept=kept, lookup=lookup, device=device)
