"""The level at which a detector hears a stream: very quiet sound is made louder for it, and for it alone.

Silero misses the beginning of speech below -53 dBFS. With up to 20 dB more it finds such speech like any other;
of the recordings that are no speech it takes no more for speech than without, quiet ones included.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from streaming.protocol import SAMPLE_RATE

MOST = 10.0  # 20 dB
LOUD = 0.03  # -30 dBFS, of a frame: as loud as speech commonly is, and no louder is anything made
MEMORY = (
    3 * SAMPLE_RATE
)  # samples in which the loudest frame counts: longer than a pause in a sentence


class Level:
    """One stream's, in frames of so many samples."""

    def __init__(self, frame: int) -> None:
        self._levels: deque[float] = deque(maxlen=MEMORY // frame)

    def adjust(self, frame: NDArray[np.float32]) -> NDArray[np.float32]:
        """The next frame, louder where it and those before it are quiet."""
        self._levels.append(float(np.sqrt(np.mean(np.square(frame, dtype=np.float64)))))
        gain = min(LOUD / max(*self._levels, LOUD / MOST), MOST)
        return frame * np.float32(max(gain, 1.0))
