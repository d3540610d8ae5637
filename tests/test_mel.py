import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperFeatureExtractor

from model.whisper.mel import SAMPLE_RATE, LogMel

NOISE = np.random.default_rng(1).standard_normal(30 * SAMPLE_RATE).astype(np.float32)


@pytest.mark.parametrize("bins", [80, 128])
@pytest.mark.parametrize("samples", [2, 159, 160, 201, 16_000, 479_999, 480_000])
def test_equals_the_feature_extractor(bins: int, samples: int) -> None:
    """At most 1e-5 from transformers' front end, with the full 30 s window."""
    audio = NOISE[:samples] * 0.1
    reference = WhisperFeatureExtractor(feature_size=bins)
    wanted = reference(audio, sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
    assert (LogMel(bins)([audio], 1500) - wanted).abs().max() <= 1e-5


def test_silence_is_not_a_number_of_nothing() -> None:
    """Zeros have a floor, as in Whisper."""
    got = LogMel(80)([np.zeros(16_000, np.float32)], 1500)
    assert torch.equal(got, torch.full_like(got, -1.5))


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 60_000), st.integers(0, 1000))
def test_a_fitted_window_is_the_front_of_the_full_one(samples: int, spare: int) -> None:
    mel, audio = LogMel(80), NOISE[:samples]
    states = min(1500, -(-samples // 320) + 2 + spare)
    full = mel([audio], 1500)
    assert torch.equal(mel([audio], states), full[:, :, : 2 * states])


def test_each_row_stands_alone() -> None:
    mel, quiet, loud = LogMel(80), NOISE[:8000] * 1e-4, NOISE[:16_000]
    assert torch.equal(mel([quiet, loud], 250)[:1], mel([quiet], 250))
