"""The encoder's window: Whisper's 30 s, computed whole, or the speech in full and the silence in samples.

Most of an utterance's window is silence. Whisper needs it: cut off, its transcripts loop. But neighbouring
silent states are alike, so that of each group of them one is computed, and attention counts it as often as
the group has states (the log of their number is added to its scores). The silence is the utterance's own, at
its own level. docs/measurements.md has what else was tried, and what it costs in words.
"""

from dataclasses import dataclass
from itertools import count
from typing import Literal

import torch
from torch import Tensor

from model.whisper.mel import SAMPLES_PER_STATE

WindowKind = Literal["speech", "full"]

_MARGIN = 50  # states of silence behind the audio that are computed one by one: 1 s
_ROUNDED = 50  # their number is a multiple of this
_FEW = (100, 150, 250, 500, 750, 1000)  # numbers of own states with static shapes
# Up to so many own states one of so many silent states is computed, of the nearest and of those further off;
# beyond, the window is full. Words alone have few states for attention to hold on to, so that their silence
# is the truest.
_STEPS = {150: (2, 2), 350: (5, 5), 1000: (5, 7)}
_NEAR = 300  # states behind the own ones: 6 s
# The fastest sinusoid of Whisper's positions has a period of 6.28 states: steps near it are spread by the
# golden ratio, for at equal distances they would always meet it in the same phase.
_SPREAD, _GOLDEN = 6, (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Which states of the encoder are computed, and how many each stands for.

    own: states computed one by one, the audio and a second or more behind it. positions: int64 [n], own
    states' 0 … own - 1, those of samples of the silence, and the last. weights: [n], log of how many states each
    stands for.
    """

    own: int
    positions: Tensor
    weights: Tensor

    @property
    def states(self) -> int:
        """How many are computed: n."""
        return len(self.positions)

    @property
    def sampled(self) -> bool:
        """Whether there are samples of silence behind the own states."""
        return self.states > self.own

    @property
    def convolved(self) -> int:
        """States of log-mel that the encoder takes: with samples, one behind the own ones, at the edge."""
        return self.own + self.sampled

    @classmethod
    def over(
        cls, own: int, total: int, steps: tuple[int, int] = (1, 1), like: Tensor | None = None
    ) -> "Window":
        """`own` of `total` states, behind them one of every group of silent ones, and the last, at the edge.

        steps: silent states of a group, near and far. like: a tensor with the weights' device and dtype; by
        default float32 on the CPU.
        """
        positions, counts = list(range(own)), [1] * own
        first, behind = own, total - 1
        for index in count():
            if first >= behind:
                break
            step = steps[first - own >= _NEAR]
            size = min(step, behind - first)
            spread = int(size * (index * _GOLDEN % 1)) if step >= _SPREAD else (size - 1) // 2
            positions.append(first + spread)
            counts.append(size)
            first += size
        if own < total:
            positions.append(behind)
            counts.append(1)
        like = torch.empty(0) if like is None else like
        weights = torch.tensor(counts, dtype=torch.float32).log().to(like)
        return cls(own, torch.tensor(positions, device=like.device), weights)


class Windows:
    """The windows of one target.

    kind: "full" is Whisper's own window for everything. total: its states. static: whether there are few
    windows. like: as for `Window.over`.
    """

    def __init__(
        self,
        kind: WindowKind,
        total: int,
        *,
        static: bool = False,
        like: Tensor | None = None,
    ) -> None:
        limit = max(_STEPS) if kind == "speech" else 0
        few = (
            [own for own in _FEW if own <= limit]
            if static
            else range(_ROUNDED, limit + 1, _ROUNDED)
        )
        self._own = [own for own in few if own < total]
        self._total = total
        self._like = like
        self._made: dict[int, Window] = {}

    def fitting(self, samples: int) -> Window:
        """The window for `samples` of audio at 16 kHz; equal ones are the same object."""
        needed = -(-samples // SAMPLES_PER_STATE) + _MARGIN
        return self._window(next((own for own in self._own if own >= needed), self._total))

    def all(self) -> list[Window]:
        """Every window, the largest first."""
        return [self._window(own) for own in (self._total, *reversed(self._own))]

    def _window(self, own: int) -> Window:
        if own not in self._made:
            steps = next((steps for most, steps in _STEPS.items() if own <= most), (1, 1))
            self._made[own] = Window.over(own, self._total, steps, self._like)
        return self._made[own]
