"""Slots: the static buffers of all sequences on the device, allocated once and changed in place."""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.whisper.network import Cache, Whisper


@dataclass(frozen=True, slots=True)
class Slots:
    """State of every sequence, by slot.

    lengths: cached positions. audio_len: encoder states that a drafter attends to. anchors: the newest
    emitted token. emitted: tokens of the transcript so far, the `forced` ones of a given prefix included.
    All int64 [slots], as are seeds; temperatures are float32 [slots]. weights: [slots, encoder states],
    added to the scores of each state (model/whisper/window.py), minus infinity where there is none.
    """

    cache: Cache
    lengths: Tensor
    weights: Tensor
    audio_len: Tensor
    anchors: Tensor
    emitted: Tensor
    forced: Tensor
    seeds: Tensor
    temperatures: Tensor

    @classmethod
    def allocate(cls, whisper: Whisper, slots: int, block: int) -> "Slots":
        """Buffers for `slots` sequences; each context has room for a `block` that overshoots it."""
        device = whisper.decoder.positions.device

        def integers(value: int = 0) -> Tensor:
            return torch.full((slots,), value, dtype=torch.int64, device=device)

        states = whisper.config.max_source_positions
        weights = torch.full((slots, states), -torch.inf, dtype=whisper.cache_dtype, device=device)
        # One state, not none: attention over nothing is NaN, and NaN would stay in the caches.
        weights[:, 0] = 0.0
        return cls(
            Cache.allocate(whisper.config, slots, device, whisper.cache_dtype, spare=block + 1),
            integers(),
            weights,
            integers(1),
            integers(),
            integers(),
            integers(),
            integers(),
            torch.zeros(slots, device=device),
        )

    def clear(self, first: int, last: int) -> None:
        """Zero the caches of slots first … last - 1."""
        self.cache.rows(first, last).clear()

    def move(self, source: int, target: int, positions: int, states: int) -> None:
        """Copy slot `source`, `positions` and `states` of its caches, over slot `target`."""
        self.cache.move(source, target, positions, states)
        for tensor in (
            self.lengths,
            self.weights,
            self.audio_len,
            self.anchors,
            self.emitted,
            self.forced,
            self.seeds,
            self.temperatures,
        ):
            tensor[target] = tensor[source]

    def look(self, first: int, last: int, weights: Tensor) -> None:
        """Let slots first … last - 1 attend to so many encoder states, with these weights."""
        self.weights[first:last, : len(weights)] = weights
        self.weights[first:last, len(weights) :] = -torch.inf

    def reset(
        self, first: int, audio_len: list[int], seeds: list[int], temperatures: list[float]
    ) -> None:
        """Begin sequences in the slots from `first` on."""
        last = first + len(seeds)
        self.audio_len[first:last] = torch.tensor(audio_len, dtype=torch.int64)
        self.lengths[first:last] = 0
        self.begin(first, [0] * len(seeds))
        self.seeds[first:last] = torch.tensor(seeds, dtype=torch.int64)
        self.temperatures[first:last] = torch.tensor(temperatures)

    def begin(self, first: int, forced: list[int]) -> None:
        """Set how many tokens of each transcript are given, in the slots from `first` on."""
        last = first + len(forced)
        self.forced[first:last] = torch.tensor(forced, dtype=torch.int64)
        self.emitted[first:last] = self.forced[first:last]

    def rewind(
        self, slot: int, prompt_tokens: int, anchor: int, seed: int, temperature: float
    ) -> None:
        """Restart the transcript in `slot` after `prompt_tokens` tokens; the last of them is `anchor`."""
        self.lengths[slot] = prompt_tokens - 1
        self.anchors[slot] = anchor
        self.emitted[slot] = self.forced[slot]
        self.seeds[slot] = seed
        self.temperatures[slot] = temperature
