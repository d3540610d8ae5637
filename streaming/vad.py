"""Voice activity detectors: Silero, and webrtcvad behind a noise gate.

They judge frames one by one, and know no utterance, no endpoint and no clock.

Measured by `python -m tests.benchmarks.bench_hearing`: of 28 minutes of music, kitchens, animals, taps and made noise
Silero takes 0.6 s a minute for speech, webrtcvad behind its gate 20 s, without it 30 and more. With such noise
under speech at 10 dB Silero ends nine utterances of ten in time; webrtcvad ends most only with the noise. Both
detect 97 % of speech's voiced frames, Silero single digits more often than the gate. So Silero is the
default, though a session takes twice as much time for it.

webrtcvad and its gate: webrtcvad alone, in every mode, takes white, pink or brown
noise and mains hum for speech from -30 or -20 dBFS on, and for ever. Behind the gate 80 minutes of them
gave no utterance; nor did clicks of up to 50 ms, which come to three frames: a minimum of 120 ms of speech
goes with it. The gate takes the beginning of a stream for its noise: it may miss a word that is cut off in
front.
"""

from collections import deque
from typing import Protocol, assert_never

import numpy as np
import webrtcvad
from numpy.typing import NDArray

from streaming.foreground import Foreground
from streaming.protocol import SAMPLE_RATE
from streaming.settings import Detector
from streaming.silero import Silero

FRAME_MS = 30
FRAME = FRAME_MS * SAMPLE_RATE // 1_000

BAND_EDGES_HZ = (200, 500, 1_000, 2_000, 4_000)  # a telephone's band of a voice
FLOOR_FRAMES = 100  # 3 s: people pause, if only between syllables; steady noise does not
SMOOTH_FRAMES = 3  # a floor taken from single frames would lie far below the noise
MARGIN_DB = 5.0  # at 4 dB white noise passes now and then
SILENT = 1e-8  # power of about the rounding noise of 16 bits: nothing is quieter


def detector(kind: Detector, mode: int) -> "VoiceActivity":
    """A detector for one stream. mode: of webrtcvad. Raises streaming.silero.DetectorError."""
    match kind:
        case "silero":
            return Foreground(Silero())
        case "webrtc":
            return Foreground(NoiseGate(WebRtcVad(mode)))
        case _:
            assert_never(kind)


class VoiceActivity(Protocol):
    """Judges consecutive frames of one stream."""

    @property
    def frame(self) -> int:
        """Samples per frame at 16 kHz."""
        ...

    def is_speech(self, frame: NDArray[np.float32]) -> bool:
        """Whether the next frame, [self.frame] in [-1, 1], is speech."""
        ...


class WebRtcVad:
    """webrtcvad, whose `mode` goes from 0 (most is speech) to 3 (least is)."""

    frame = FRAME

    def __init__(self, mode: int) -> None:
        self._vad = webrtcvad.Vad(mode)

    def is_speech(self, frame: NDArray[np.float32]) -> bool:
        """Whether the next frame is speech; webrtcvad adapts and hangs over from frame to frame."""
        pcm = (frame * 32_767).astype(np.int16)
        return bool(self._vad.is_speech(pcm.tobytes(), SAMPLE_RATE))


class NoiseGate:
    """Passes a frame as speech where another detector finds speech and the frame stands out of the noise.

    Four bands, an octave or so each, have a noise floor of their own: the quietest moment of the
    last three seconds. So the colour of the noise does not matter; steady noise is silent after
    three seconds at most, at once when the stream begins with it; and every dip in speech lowers
    the floor again. A frame stands out by the mean over the bands of its power above their floors.
    """

    def __init__(self, detector: VoiceActivity) -> None:
        self._detector = detector
        self._edges = [-(-edge * detector.frame // SAMPLE_RATE) for edge in BAND_EDGES_HZ]
        self._window = np.hanning(detector.frame)
        self._recent: deque[NDArray[np.float64]] = deque(maxlen=SMOOTH_FRAMES)
        self._smooth = np.full((FLOOR_FRAMES, len(BAND_EDGES_HZ) - 1), np.inf)  # a ring
        self._frames = 0

    @property
    def frame(self) -> int:
        """Samples per frame at 16 kHz: the detector's."""
        return self._detector.frame

    def is_speech(self, frame: NDArray[np.float32]) -> bool:
        """Whether the next frame is speech; detector and gate see every frame."""
        excess = self._excess_db(frame)
        return self._detector.is_speech(frame) and excess > MARGIN_DB

    def _excess_db(self, frame: NDArray[np.float32]) -> float:
        levels = np.log10(self._band_powers(frame))  # [bands]
        self._recent.append(levels)
        self._smooth[self._frames % FLOOR_FRAMES] = np.mean(self._recent, axis=0)
        self._frames += 1
        above = levels - self._smooth.min(axis=0)
        return float(10.0 * np.log10(np.mean(10.0**above)))

    def _band_powers(self, frame: NDArray[np.float32]) -> NDArray[np.float64]:  # [bands]
        spectrum = np.abs(np.fft.rfft(frame * self._window)) ** 2
        powers = np.add.reduceat(spectrum, self._edges)[:-1]  # the last sum lies above the bands
        # 8/3 for the window, 2 for the half spectrum.
        mean_square = powers * (16 / 3 / len(frame) ** 2)
        return np.maximum(mean_square, SILENT)
