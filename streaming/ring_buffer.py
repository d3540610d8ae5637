"""The audio of an open utterance and of the moments before it, kept in one fixed array."""

import numpy as np
from numpy.typing import NDArray


class AudioRingBuffer:
    """The last stretch of a session's audio, addressed by sample index, in one fixed array."""

    def __init__(self, capacity: int) -> None:
        self.samples = np.zeros(capacity, np.float32)
        self._origin = 0  # the index of samples[0]
        self._kept = 0  # the oldest index that can still be read
        self.stop = 0  # the next index to be written

    def append(self, samples: NDArray[np.float32]) -> None:
        """Add [n] samples; n and what is kept fit the capacity together."""
        if self.stop + len(samples) - self._origin > len(self.samples):
            kept = self.samples[self._kept - self._origin : self.stop - self._origin]
            self.samples[: len(kept)] = kept
            self._origin = self._kept
        begin = self.stop - self._origin
        self.samples[begin : begin + len(samples)] = samples
        self.stop += len(samples)

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """A copy of [start, stop), none of it forgotten."""
        assert self._kept <= start <= stop <= self.stop, (self._kept, start, stop, self.stop)
        return self.samples[start - self._origin : stop - self._origin].copy()

    def forget(self, before: int) -> None:
        """Give up everything before the index."""
        self._kept = max(self._kept, before)
