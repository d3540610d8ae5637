"""Channels to mono: their mean, or one of them where the mean cancels out or the client names it.

Judged block by block from the samples before, so that nothing is held back and the frames in which they
came change nothing.
"""

import numpy as np
from numpy.typing import NDArray

BLOCKS_PER_SECOND = 100
MEMORY = 0.98  # of a block's power in the next one: half a second or so
# Power of the mean to that of the strongest channel. Two channels of which one is silent come to 1/4, equal
# ones of opposite sign to 0.
CANCELLED = 0.1  # below, that channel is taken
SOUND = 0.2  # above, the mean is taken again


class Mixdown:
    """One stream's. channel: the one to take, None for the mean."""

    def __init__(self, rate: int, channels: int, channel: int | None) -> None:
        self._channels = channels
        self._taken = channel
        self._fixed = channel is not None
        self._block = max(rate // BLOCKS_PER_SECOND, 1)
        self._rest = np.zeros((0, channels), np.float32)  # of the block that is not complete
        self._mean = 0.0  # power, remembered
        self._powers = np.zeros(channels)  # [channels]

    def mix(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """[frames * channels], interleaved, to mono [frames]."""
        if self._channels == 1:
            return samples
        frames = samples.reshape(-1, self._channels)
        if self._fixed:
            return np.ascontiguousarray(frames[:, self._taken])
        mixed = np.empty(len(frames), np.float32)
        at = 0
        while at < len(frames):
            size = min(self._block - len(self._rest), len(frames) - at)
            part = frames[at : at + size]
            mixed[at : at + size] = (
                part.mean(axis=1, dtype=np.float32) if self._taken is None else part[:, self._taken]
            )
            self._rest = np.concatenate([self._rest, part])
            at += size
            if len(self._rest) == self._block:
                self._judge(self._rest.astype(np.float64))
                self._rest = self._rest[:0]
        return mixed

    def _judge(self, block: NDArray[np.float64]) -> None:
        """Take a block, [frames, channels], into account."""
        self._mean = MEMORY * self._mean + float(np.square(block.mean(axis=1)).mean())
        self._powers = MEMORY * self._powers + np.square(block).mean(axis=0)
        strongest = self._powers.max()
        if self._mean > SOUND * strongest or not strongest:
            self._taken = None
        elif self._taken is None and self._mean < CANCELLED * strongest:
            self._taken = int(self._powers.argmax())
