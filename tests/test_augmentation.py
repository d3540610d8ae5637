import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.training.synthesis.augmentation import (
    SAMPLE_RATE,
    Audio,
    Augmentation,
    draw,
    render,
    resize,
    stream,
)

PITCHES = (0.6, 1.15)
PLAIN = Augmentation(
    size=1.0,
    tempo=1.0,
    pitch=1.0,
    lead_s=0.5,
    tail_s=0.25,
    reflections=(),
    noise=None,
    snr_db=20.0,
    telephone=False,
    peak_dbfs=-6.0,
    cut=None,
)


def tone(hertz: float = 440.0, seconds: float = 2.0, rate: int = SAMPLE_RATE) -> Audio:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate).astype(np.float32)


def rendered(speech: Audio, noises: tuple[Audio, ...] = (), **changes: object) -> Audio:
    augmentation = dataclasses.replace(PLAIN, **changes)  # type: ignore[arg-type]  # any field
    return render(speech, augmentation, stream(0, 0, 0), noises)


def power_between(audio: Audio, low: float, high: float) -> float:
    """Share of the power between two frequencies."""
    power = np.abs(np.fft.rfft(audio)) ** 2
    hertz = np.fft.rfftfreq(len(audio), 1 / SAMPLE_RATE)
    return float(power[(hertz >= low) & (hertz < high)].sum() / power.sum())


def rms_db(audio: Audio) -> float:
    return float(10 * np.log10(np.square(audio).mean()))


def test_a_clips_numbers_depend_on_nothing_but_seed_clip_and_purpose() -> None:
    one = stream(3, 7, 1).random(8)
    stream(3, 6, 1).random(1000)
    assert np.array_equal(one, stream(3, 7, 1).random(8))
    for seed, clip, purpose in [(4, 7, 1), (3, 8, 1), (3, 7, 2)]:
        assert not np.array_equal(one, stream(seed, clip, purpose).random(8))


def test_variations_have_the_shares_that_were_asked_for() -> None:
    many = [draw(stream(0, clip, 0), PITCHES, recorded=False) for clip in range(2000)]
    shares = {
        "noise": (np.mean([each.noise is not None for each in many]), 0.5),
        "room": (np.mean([bool(each.reflections) for each in many]), 1 / 3),
        "telephone": (np.mean([each.telephone for each in many]), 0.1),
        "cut": (np.mean([each.cut is not None for each in many]), 0.15),
    }
    for name, (found, wanted) in shares.items():
        assert found == pytest.approx(wanted, abs=0.04), name
    assert {each.noise for each in many} == {None, "white", "pink", "brown"}
    recorded = {draw(stream(0, clip, 0), PITCHES, recorded=True).noise for clip in range(200)}
    assert "recorded" in recorded


@settings(deadline=None)
@given(st.integers(0, 2**64), st.integers(0, 10**6), st.booleans())
def test_variations_stay_within_bounds(seed: int, clip: int, recorded: bool) -> None:
    one = draw(stream(seed, clip, 0), PITCHES, recorded=recorded)
    assert 0.85 <= one.size <= 1.18
    assert PITCHES[0] <= one.pitch <= PITCHES[1]
    assert 0.1 <= one.lead_s <= 1.0
    assert 0.1 <= one.tail_s <= 1.0
    assert -32 <= one.peak_dbfs <= -3
    assert 5 <= one.snr_db <= 40
    assert all(0 < delay <= 0.06 and 0 < gain < 1 for delay, gain in one.reflections)
    assert one.cut is None or 0 <= one.cut <= 1


def test_a_bucket_names_the_speaker() -> None:
    assert PLAIN.bucket == "middle-plain"
    assert dataclasses.replace(PLAIN, size=0.86, pitch=0.7).bucket == "large-low"
    assert dataclasses.replace(PLAIN, size=1.15, pitch=1.1).bucket == "small-high"


@pytest.mark.parametrize("size", [0.85, 1.0, 1.18])
def test_size_moves_every_frequency_by_its_factor(size: float) -> None:
    audio = resize(tone(440, 2.0, 24_000), 24_000, size)
    assert len(audio) == pytest.approx(2 * SAMPLE_RATE / size, abs=2)
    spectrum = np.abs(np.fft.rfft(audio))
    peak = np.fft.rfftfreq(len(audio), 1 / SAMPLE_RATE)[spectrum.argmax()]
    assert peak == pytest.approx(440 * size, rel=0.01)


def test_silence_surrounds_speech_and_the_peak_is_as_asked() -> None:
    clip = rendered(tone())
    assert len(clip) == round(2.75 * SAMPLE_RATE)
    assert not clip[: SAMPLE_RATE // 2].any()
    assert not clip[-SAMPLE_RATE // 4 :].any()
    assert np.abs(clip).max() == pytest.approx(10 ** (-6 / 20), rel=1e-3)


@pytest.mark.parametrize("noise", ["white", "pink", "brown"])
def test_noise_lies_under_the_whole_clip_at_its_distance(noise: str) -> None:
    """The distance is to what is spoken: pauses within the speech do not count."""
    speech = np.concatenate([tone(), np.zeros(4 * SAMPLE_RATE, np.float32)])
    clip = rendered(speech, noise=noise, snr_db=20.0)
    alone = clip[-3 * SAMPLE_RATE :]
    audio_len = clip[SAMPLE_RATE : 2 * SAMPLE_RATE]
    assert rms_db(audio_len) - rms_db(alone) == pytest.approx(20, abs=2)
    assert clip[: SAMPLE_RATE // 2].any()


def test_the_colours_of_noise_fall_more_and_more_steeply() -> None:
    low = [
        power_between(rendered(tone(), noise=colour, snr_db=5.0)[-SAMPLE_RATE // 5 :], 0, 400)
        for colour in ("white", "pink", "brown")
    ]
    assert low == sorted(low)
    assert low[0] < 0.2
    assert low[2] > 0.9


def test_recorded_noise_is_one_of_the_recordings() -> None:
    hum = tone(1000, 0.5)
    clip = rendered(tone(440), (hum,), noise="recorded", snr_db=10.0)
    assert power_between(clip[: SAMPLE_RATE // 2], 950, 1050) > 0.9


def test_a_reflection_is_a_later_quieter_copy() -> None:
    click = np.zeros(SAMPLE_RATE, np.float32)
    click[0] = 1.0
    clip = rendered(click, reflections=((0.01, 0.5),), lead_s=0.0)
    assert np.flatnonzero(clip).tolist() == [0, 160]
    assert clip[160] / clip[0] == pytest.approx(0.5)


def test_the_telephone_keeps_its_band_alone() -> None:
    speech = tone(100) + tone(1000) + tone(3800) + tone(6000)
    direct, clip = rendered(speech), rendered(speech, telephone=True)
    assert len(direct) == len(clip)
    assert power_between(direct, 300, 3400) < 0.3
    assert power_between(clip, 300, 3400) > 0.98


def test_a_cut_ends_the_clip_within_its_speech() -> None:
    for cut in (0.0, 0.4, 1.0):
        clip = rendered(tone(seconds=5.0), cut=cut)
        assert len(clip) == round((0.5 + 1 + cut * 4) * SAMPLE_RATE)
        assert np.abs(clip[-400:]).max() > 0.4


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_every_clip_can_be_written(clip: int) -> None:
    """Finite, not silent, within full scale, whatever was drawn."""
    augmentation = draw(stream(0, clip, 0), PITCHES, recorded=False)
    audio = render(tone(seconds=1.3), augmentation, stream(0, clip, 1))
    assert audio.dtype == np.float32
    assert np.isfinite(audio).all()
    assert 0.02 < np.abs(audio).max() < 1
