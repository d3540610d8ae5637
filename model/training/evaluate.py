"""Offline evaluation of a drafter on trajectories, by the walk of greedy decoding.

The target's tokens are known, so that it runs no pass: each block is compared with the tokens that follow,
and the walk continues behind the accepted ones (A.1).
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from model.checkpoints.load import Checkpoint
from model.drafting.drafter_files import Network
from model.training.data.packing import lookup_of, pack, possible_anchors
from model.training.data.teacher import Trajectory
from model.training.score import Score, combined
from model.training.student import Student
from model.training.students import student_of


@torch.no_grad()
def walk_all(
    student: Student,
    trajectories: Iterable[Trajectory],
    *,
    kept: Sequence[int],
    lookup: Tensor,
    device: torch.device,
) -> Score:
    """Walk every trajectory. kept: the blocks of their features; lookup: see `lookup_of`."""
    architecture = student.network.architecture
    walks = []
    for trajectory in trajectories:
        batch = pack(
            [trajectory],
            [list(possible_anchors(trajectory))],
            kept=kept,
            wanted=architecture.aux_layers,
            block=architecture.block,
            lookup=lookup,
        )
        walks.append(student.walk(batch.to(device)))
    return combined(walks)


def evaluate(
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
    return walk_all(student, trajectories, kept=kept, lookup=lookup, device=device)
