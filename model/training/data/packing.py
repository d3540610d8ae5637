"""Trajectories to training batches: anchors, what each may see, and what it should say.

Pure functions of tensors; which anchors are drawn when is `shelf`'s.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from model.training.data.teacher import Trajectory

IGNORED = -1  # a label that does not count


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed anchor blocks (Whisper-Flash 3.3, A.3); rows are utterances.

    features: float32 [rows, n, taps * width]; states: float32 [rows, m, width], of which
    `audible` [rows, m] counts. anchors: int64 [rows, a], token ids; places: [rows, a], positions.
    past: bool [rows, a, n]: history strictly before the anchor. labels: int64 [rows, a, block],
    what follows each anchor, as indices into the draft vocabulary, or `IGNORED`. tokens: int64
    [rows, n + 1], ids of all that stands there, openings included; 0 behind the end.
    """

    features: Tensor
    states: Tensor
    audible: Tensor
    anchors: Tensor
    places: Tensor
    past: Tensor
    labels: Tensor
    tokens: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on `device`."""
        return Batch(*(getattr(self, name).to(device) for name in self.__slots__))


def lookup_of(vocabulary: Sequence[int] | None, size: int) -> Tensor:
    """int64 [size]: the place of each token id in the draft vocabulary (None: all), or `IGNORED`."""
    lookup = torch.full((size,), IGNORED)
    ids = list(range(size) if vocabulary is None else vocabulary)
    lookup[ids] = torch.arange(len(ids))
    return lookup


def possible_anchors(trajectory: Trajectory) -> range:
    """Positions of emitted tokens that something follows."""
    return range(trajectory.prompt_len, len(trajectory.tokens) - 1)


def draw_anchors(trajectory: Trajectory, count: int, source: random.Random) -> list[int]:
    """At most `count` positions, without replacement."""
    possible = possible_anchors(trajectory)
    return sorted(source.sample(possible, min(count, len(possible))))


def select_aux_layers(features: Tensor, kept: Sequence[int], wanted: Sequence[int]) -> Tensor:
    """Of features [n, kept * width] those of the blocks `wanted`: [n, wanted * width]."""
    blocks = features.view(len(features), len(kept), -1)
    return blocks[:, [list(kept).index(tap) for tap in wanted]].flatten(1)


def pack(
    trajectories: Sequence[Trajectory],
    anchors: Sequence[Sequence[int]],
    *,
    kept: Sequence[int],
    wanted: Sequence[int],
    block: int,
    lookup: Tensor,
) -> Batch:
    """Put utterances side by side; rows with fewer anchors than others are filled up, uncounted.

    kept: blocks that the trajectories' features are of; wanted: those that the drafter taps.
    lookup: see `lookup_of`.
    """
    most = max(map(len, anchors))
    places = torch.tensor([[*row, *[row[-1]] * (most - len(row))] for row in anchors])
    real = torch.arange(most) < torch.tensor([len(row) for row in anchors])[:, None]
    tokens = pad_sequence([t.tokens for t in trajectories], batch_first=True, padding_value=IGNORED)
    follow = places[..., None] + 1 + torch.arange(block)
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
        audible=torch.arange(padded.shape[1]) < lengths[:, None],
        anchors=tokens.gather(1, places),
        places=places,
        past=torch.arange(n) < places[..., None],
        labels=labels,
        tokens=tokens.clamp(min=0),
    )
