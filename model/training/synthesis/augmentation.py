"""Augmentation of generated speech: speaker, room, noise, telephone line, level, silence and cuts.

Every draw is a function of (seed, clip).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000  # as model.whisper.mel has it, which needs torch

_ROOM_SHARE, _NOISE_SHARE, _TELEPHONE_SHARE, _CUT_SHARE = 1 / 3, 0.5, 0.1, 0.15
_SIZES = (0.85, 1.18)
_TEMPOS = (0.8, 1.25)
_SILENCES_S = (0.1, 1.0)
_PEAKS_DBFS = (-32.0, -3.0)
_SNRS_DB = (5.0, 40.0)
_REFLECTIONS, _LAST_REFLECTION_S, _ROOM_DECAY_S = (2, 8), 0.06, 0.03
_TELEPHONE_RATE, _TELEPHONE_BAND_HZ, _EDGE_HZ, _MU = 8_000, (300.0, 3400.0), 60.0, 255.0
_SLOPES = {"white": 0.0, "pink": 0.5, "brown": 1.0}  # amplitude falls as frequency ** -slope
_LOWEST_NOISE_HZ = 20.0
_SHORTEST_CUT_S = 1.0
_FRAME = SAMPLE_RATE // 50
_AUDIBLE = 1e-3  # a frame's power as a share of the loudest one's

Audio = NDArray[np.float32]
Noise = Literal["white", "pink", "brown", "recorded"]


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How one clip is made.

    size: factor on pitch and formants alike: above 1 a smaller speaker, below 1 a larger one. tempo,
    pitch: further factors on the voice's own. reflections: delay in seconds and gain of each. peak_dbfs:
    of the loudest sample. cut: where the clip ends, as a share of its speech; None leaves it whole.
    """

    size: float
    tempo: float
    pitch: float
    lead_s: float
    tail_s: float
    reflections: tuple[tuple[float, float], ...]
    noise: Noise | None
    snr_db: float
    telephone: bool
    peak_dbfs: float
    cut: float | None

    @property
    def bucket(self) -> str:
        """The apparent speaker, by size and pitch, in words."""
        size = "large" if self.size < 0.95 else "small" if self.size > 1.06 else "middle"
        pitch = "low" if self.pitch < 0.9 else "high" if self.pitch > 1.05 else "plain"
        return f"{size}-{pitch}"


def stream(seed: int, clip: int, purpose: int) -> np.random.Generator:
    """A counter-based stream of random numbers for one clip and one purpose."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, purpose, clip]))


def draw(rng: np.random.Generator, pitches: tuple[float, float], *, recorded: bool) -> Augmentation:
    """A random augmentation for a voice whose pitch may be multiplied by `pitches`.

    recorded: whether there are recordings of noise to choose from.
    """
    noises: list[Noise] = ["white", "pink", "brown"]
    if recorded:
        noises += ["recorded"] * len(noises)
    return Augmentation(
        size=_log_uniform(rng, _SIZES),
        tempo=_log_uniform(rng, _TEMPOS),
        pitch=_log_uniform(rng, pitches),
        lead_s=rng.uniform(*_SILENCES_S),
        tail_s=rng.uniform(*_SILENCES_S),
        reflections=_reflections(rng) if rng.random() < _ROOM_SHARE else (),
        noise=noises[int(rng.integers(len(noises)))] if rng.random() < _NOISE_SHARE else None,
        snr_db=rng.uniform(*_SNRS_DB),
        telephone=rng.random() < _TELEPHONE_SHARE,
        peak_dbfs=rng.uniform(*_PEAKS_DBFS),
        cut=rng.random() if rng.random() < _CUT_SHARE else None,
    )


def resize(speech: Audio, rate: int, size: float) -> Audio:
    """Play `speech` `size` times as fast, at 16 kHz: pitch and formants rise by that factor."""
    import soxr  # noqa: PLC0415  (an extra's)

    return np.asarray(soxr.resample(speech, rate * size, SAMPLE_RATE), np.float32)


def render(
    speech: Audio,
    augmentation: Augmentation,
    rng: np.random.Generator,
    recordings: Sequence[Audio] = (),
) -> Audio:
    """The clip: float32 [samples], 16 kHz mono, from speech at 16 kHz that is already resized.

    recordings: of noise, each 16 kHz mono and not empty.
    """
    lead, tail = (round(s * SAMPLE_RATE) for s in (augmentation.lead_s, augmentation.tail_s))
    clip = np.pad(_reflected(speech, augmentation.reflections), (lead, tail))
    if augmentation.noise is not None:
        noise = _noise(augmentation.noise, len(clip), rng, recordings)
        level = _loudness(speech) * 10 ** (-augmentation.snr_db / 20)
        clip += noise * np.float32(level / max(_rms(noise), 1e-9))
    if augmentation.telephone:
        clip = _telephoned(clip)
    if augmentation.cut is not None:
        earliest = min(round(_SHORTEST_CUT_S * SAMPLE_RATE), len(speech))
        clip = clip[: lead + earliest + round((len(speech) - earliest) * augmentation.cut)]
    peak = 10 ** (augmentation.peak_dbfs / 20)
    return clip * np.float32(peak / max(float(np.abs(clip).max()), 1e-9))


def _log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(*np.log(bounds))))


def _reflections(rng: np.random.Generator) -> tuple[tuple[float, float], ...]:
    delays = rng.uniform(0.002, _LAST_REFLECTION_S, int(rng.integers(*_REFLECTIONS)))
    gains = rng.uniform(0.2, 0.7, len(delays)) * np.exp(-delays / _ROOM_DECAY_S)
    return tuple(zip(delays.tolist(), gains.tolist(), strict=True))


def _reflected(speech: Audio, reflections: Sequence[tuple[float, float]]) -> Audio:
    reflected = speech.copy()
    for delay_s, gain in reflections:
        delay = round(delay_s * SAMPLE_RATE)
        reflected[delay:] += np.float32(gain) * speech[: len(speech) - delay]
    return reflected


def _noise(
    kind: Noise, samples: int, rng: np.random.Generator, recordings: Sequence[Audio]
) -> Audio:
    if kind == "recorded":
        recording = recordings[int(rng.integers(len(recordings)))]
        return np.resize(np.roll(recording, -int(rng.integers(len(recording)))), samples)
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    hertz = np.fft.rfftfreq(samples, 1 / SAMPLE_RATE)
    spectrum *= np.maximum(hertz, _LOWEST_NOISE_HZ) ** -_SLOPES[kind]
    return np.fft.irfft(spectrum, samples).astype(np.float32)


def _telephoned(clip: Audio) -> Audio:
    """The clip after a line of 300 … 3400 Hz at 8 kHz in 8-bit μ-law (G.711's curve)."""
    import soxr  # noqa: PLC0415  (an extra's)

    narrow = soxr.resample(clip, SAMPLE_RATE, _TELEPHONE_RATE)
    hertz = np.fft.rfftfreq(len(narrow), 1 / _TELEPHONE_RATE)
    low, high = _TELEPHONE_BAND_HZ
    gain = np.clip((hertz - low) / _EDGE_HZ + 0.5, 0, 1) * np.clip(
        (high - hertz) / _EDGE_HZ + 0.5, 0, 1
    )
    line = np.fft.irfft(np.fft.rfft(narrow) * gain, len(narrow))
    line /= max(float(np.abs(line).max()), 1e-9)
    code = np.round(np.sign(line) * np.log1p(_MU * np.abs(line)) / np.log1p(_MU) * 127) / 127
    line = np.sign(code) * np.expm1(np.abs(code) * np.log1p(_MU)) / _MU
    wide = np.asarray(soxr.resample(line, _TELEPHONE_RATE, SAMPLE_RATE), np.float32)
    return np.pad(wide[: len(clip)], (0, max(len(clip) - len(wide), 0)))


def _loudness(speech: Audio) -> float:
    """Root mean square over the frames that are not silent."""
    frames = speech[: len(speech) // _FRAME * _FRAME].reshape(-1, _FRAME)
    power = np.square(frames).mean(axis=1)
    return float(np.sqrt(power[power >= _AUDIBLE * power.max()].mean()))


def _rms(audio: Audio) -> float:
    return float(np.sqrt(np.square(audio).mean()))
