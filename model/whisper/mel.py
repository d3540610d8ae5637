"""Log-mel features, as WhisperFeatureExtractor computes them, in torch on the engine's device."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers.audio_utils import mel_filter_bank

SAMPLE_RATE = 16_000
WINDOW = 400  # samples: 25 ms
HOP = 160  # samples: 10 ms
_FLOOR = 1e-10  # power that Whisper's front end takes for silence
_FRAMES_PER_STATE = 2  # the encoder's second convolution has stride 2
SAMPLES_PER_STATE = HOP * _FRAMES_PER_STATE  # 20 ms


class LogMel(nn.Module):
    """The front end for 80 or 128 mel bins, within 1e-5 of the reference."""

    filters: Tensor
    window: Tensor

    def __init__(self, bins: int) -> None:
        super().__init__()
        bank = mel_filter_bank(
            num_frequency_bins=1 + WINDOW // 2,
            num_mel_filters=bins,
            min_frequency=0.0,
            max_frequency=8000.0,
            sampling_rate=SAMPLE_RATE,
            norm="slaney",
            mel_scale="slaney",
        )
        self.register_buffer("filters", torch.from_numpy(bank.T.copy()).float(), persistent=False)
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)

    def forward(self, audios: Sequence[NDArray[np.float32]], states: int) -> Tensor:
        """[len(audios), bins, 2 * states], each audio padded with silence.

        audios: float32 [samples] at 16 kHz, none longer than `states` encoder states.
        """
        return torch.stack([self._one(audio, states * _FRAMES_PER_STATE) for audio in audios])

    def _one(self, audio: NDArray[np.float32], frames: int) -> Tensor:
        # Frames behind the audio are silence and not computed. The transform is centred: a frame
        # extends half a window to either side.
        computed = min(frames, -(-(len(audio) + WINDOW) // HOP))
        padded = functional.pad(
            torch.from_numpy(np.ascontiguousarray(audio)).to(self.window.device),
            (0, computed * HOP - len(audio)),
        )
        spectrum = torch.stft(padded, WINDOW, HOP, window=self.window, return_complex=True)
        # Whisper drops the last frame.
        power = spectrum[:, :-1].abs().square().contiguous()
        log = torch.clamp(self.filters @ power, min=_FLOOR).log10()
        log = functional.pad(log, (0, frames - computed), value=float(np.log10(_FLOOR)))
        return (torch.maximum(log, log.max() - 8.0) + 4.0) / 4.0
