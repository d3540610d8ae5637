"""Silero's voice detector: a small recurrent network that tells voices from music, hum and noise.

The network is that of the package silero-vad (version 6, for 16 kHz, ONNX), run by onnxruntime. Its
file is read; the package itself is not imported, for it would import torch.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.level import Level
from streaming.protocol import SAMPLE_RATE

FRAME = 512  # samples: the network's input, 32 ms
CONTEXT = 64  # samples of the frame before, which the network reads again

ONSET = 0.3  # probability from which a frame is speech after silence
REST = 0.2  # ... and after speech

MODEL = "data/silero_vad_16k_op15.onnx"


class DetectorError(Exception):
    """The detector is not installed; the message says what is missing and what to do."""


class Silero:
    """One stream's detector; the network itself is shared by all."""

    frame = FRAME

    def __init__(self) -> None:
        self._network = network()
        self._state = np.zeros((2, 1, 128), np.float32)
        self._context = np.zeros(CONTEXT, np.float32)
        self._level = Level(FRAME)
        self._speaks = False

    def is_speech(self, frame: NDArray[np.float32]) -> bool:
        """Whether the next frame, [FRAME] in [-1, 1], is speech."""
        probability = self.probability(self._level.adjust(frame))
        self._speaks = probability >= (REST if self._speaks else ONSET)
        return self._speaks

    def probability(self, frame: NDArray[np.float32]) -> float:
        """The probability that the next frame is speech: 0 … 1."""
        window = np.concatenate([self._context, frame])
        self._context = frame[-CONTEXT:].copy()
        inputs = {
            "input": window[np.newaxis],
            "state": self._state,
            "sr": np.asarray(SAMPLE_RATE, np.int64),
        }
        output, self._state = self._network.run(None, inputs)
        return float(output[0, 0])


@cache
def network() -> Any:
    """The onnxruntime session, loaded once; it may be run by any thread. Raises DetectorError."""
    try:
        import onnxruntime  # noqa: PLC0415  (heavy, and not needed for the other detector)

        package = importlib.util.find_spec("silero_vad")
    except ImportError:
        package = None
    if package is None or package.origin is None:
        raise DetectorError(
            "the detector silero needs the packages silero-vad and onnxruntime: install them (they "
            'belong to the extra "daemon"), or choose the other detector (vad = webrtc)'
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = Path(package.origin).parent / MODEL
    if not path.is_file():
        raise DetectorError(f"the package silero-vad lacks {MODEL}: install a version from 6.2 on")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
