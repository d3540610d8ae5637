"""Trajectories packed into training batches: anchors, attention masks and labels."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from model.training.data.teacher import Trajectory

IGNORED = -1  # a label without a loss


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed anchor blocks (Whisper-Flash 3.3, A.3); rows are utterances.

    features: float32 [rows, n, aux layers * width]. states: float32 [rows, m, width], under audio_mask,
    bool [rows, m]. anchors: int64 [rows, a], token ids; positions: int64 [rows, a], theirs.
    history_mask: bool [rows, a, n], true strictly before the anchor. labels: int64 [rows, a, block], the
    tokens after each anchor as indices into the draft vocabulary, or `IGNORED`. tokens: int64
    [rows, n + 1], ids of prompt and transcript; 0 behind the end.
    """

    features: Tensor
    states: Tensor
    audio_mask: Tensor
    anchors: Tensor
    positions: Tensor
    history_mask: Tensor
    labels: Tensor
    tokens: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on `device`."""
        return Batch(*(getattr(self, name).to(device) for name in self.__slots__))


def lookup_of(vocabulary: Sequence[int] | None, size: int) -> Tensor:
    """int64 [size]: the index of each token id in the draft vocabulary (None: all), or `IGNORED`."""
    lookup = torch.full((size,), IGNORED)
    ids = list(range(size) if vocabulary is None else vocabulary)
    lookup[ids] = torch.arange(len(ids))
    return lookup


def possible_anchors(trajectory: Trajectory) -> range:
    """Positions of emitted tokens but the last."""
    return range(trajectory.prompt_len, len(trajectory.tokens) - 1)


def draw_anchors(trajectory: Trajectory, count: int, source: random.Random) -> list[int]:
    """At most `count` positions, without replacement."""
    possible = possible_anchors(trajectory)
    return sorted(source.sample(possible, min(count, len(possible))))


def select_aux_layers(features: Tensor, kept: Sequence[int], wanted: Sequence[int]) -> Tensor:
    """The features of the blocks `wanted`, [n, wanted * width], from those of `kept`, [n, kept * width]."""
    blocks = features.view(len(features), len(kept), -1)
    return blocks[:, [list(kept).index(layer) for layer in wanted]].flatten(1)


def pack(
    trajectories: Sequence[Trajectory],
    anchors: Sequence[Sequence[int]],
    *,
    kept: Sequence[int],
    wanted: Sequence[int],
    block: int,
    lookup: Tensor,
) -> Batch:
    """Pack trajectories into one batch; surplus anchors of a row are padding, with labels `IGNORED`.

    kept: the blocks of the trajectories' features; wanted: those that the drafter reads. lookup: see
    `lookup_of`.
    """
    most = max(map(len, anchors))
    positions = torch.tensor([[*row, *[row[-1]] * (most - len(row))] for row in anchors])
    real = torch.arange(most) < torch.tensor([len(row) for row in anchors])[:, None]
    tokens = pad_sequence([t.tokens for t in trajectories], batch_first=True, padding_value=IGNORED)
    follow = positions[..., None] + 1 + torch.arange(block)
    inside = follow < tokens.shape[1]
    flat = follow.clamp(max=tokens.shape[1] - 1).flatten(1)
    following = tokens.gather(1, flat).view_as(follow)
    counted = real[..., None] & inside & (following != IGNORED)
    labels = torch.where(counted, lookup[following.clamp(min=0)], IGNORED)
    features = [select_aux_layers(t.features.float(), kept, wanted) for t in trajectories]
    states = [t.states.float() for t in trajectories]
    lengths = torch.tensor([len(s) for s in states])
    padded = pad_sequence(states, batch_first=True)
    n = max(map(len, features))
    return Batch(
        features=pad_sequence(features, batch_first=True),
        states=padded,
        audio_mask=torch.arange(padded.shape[1]) < lengths[:, None],
        anchors=tokens.gather(1, positions),
        positions=positions,
        history_mask=torch.arange(n) < positions[..., None],
        labels=labels,
        tokens=tokens.clamp(min=0),
    )
