"""How good a network's proposals are, from trajectories alone: the walk of greedy decoding.

The target's tokens are known, so that no target pass is needed: what would be proposed is compared
with what follows, and the walk goes on behind what would be accepted (A.1).
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from model.checkpoints.load import Checkpoint
from model.drafting.drafter_files import Network
from model.training.data.packing import lookup_of, pack, possible_anchors
from model.training.data.teacher import Trajectory
from model.training.score import Score, together
from model.training.student import Student
from model.training.students import student_of


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
    plan = student.network.architecture
    walks = []
    for trajectory in trajectories:
        batch = pack(
            [trajectory],
            [list(possible_anchors(trajectory))],
            kept=kept,
            wanted=plan.aux_layers,
            block=plan.block,
            lookup=lookup,
        )
        walks.append(student.walk(batch.to(device)))
    return together(walks)


def judge(
    checkpoint: Checkpoint,
    network: Network,
    trajectories: Iterable[Trajectory],
    *,
    kept: Sequence[int],
    device: torch.device,
) -> Score:
    """Walk every trajectory with a finished network, in float32."""
    student = student_of(network, checkpoint).to(device).eval()
    lookup = lookup_of(network.architecture.vocabulary, checkpoint.config.vocab_size)
    return score(student, trajectories, kept=kept, lookup=lookup, device=device)
