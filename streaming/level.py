"""The level at which a detector hears a stream: very quiet sound is made louder for it, and for it alone.

Silero misses the beginning of speech below -53 dBFS. With up to 20 dB more it finds such speech like any other;
of the recordings that are no speech it takes no more for speech than without, quiet ones included.
"""

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streaming.protocol import SAMPLE_RATE

if TYPE_CHECKING:
    from streaming.vad import VoiceActivity

MOST = 10.0  # 20 dB
LOUD = 0.03  # -30 dBFS, of a frame: as loud as speech commonly is, and no louder is anything made
MEMORY = 3 * SAMPLE_RATE  # samples in which the loudest frame counts: longer than a pause in a sentence


class Levelled:
    """A detector of speech that hears another level; the loudest frame of late says which."""

    def __init__(self, detector: "VoiceActivity") -> None:
        self._detector = detector
        self._levels: deque[float] = deque(maxlen=MEMORY // detector.frame)

    @property
    def frame(self) -> int:
        """Samples per frame at 16 kHz: the detector's."""
        return self._detector.frame

    def is_speech(self, frame: NDArray[np.float32]) -> bool:
        """Whether the next frame is speech."""
        self._levels.append(float(np.sqrt(np.mean(np.square(frame, dtype=np.float64)))))
        gain = np.float32(min(LOUD / max(*self._levels, LOUD / MOST), MOST))
        return self._detector.is_speech((frame * max(gain, np.float32(1))).clip(-1.0, 1.0))
