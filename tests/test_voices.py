import shutil

import numpy as np
import pytest

from model.training.synthesis import voices
from model.training.synthesis.voices import VOICES, Voice, VoiceError
from tests.support.lessons import needs_hibari

TEXT = "The boy—he is nine—paid £2 at the café."
needs_flite = pytest.mark.skipif(
    shutil.which("flite") is None, reason="the Debian package flite is not installed"
)
INSTALLED = [
    pytest.param(
        voice,
        id=voice.name,
        marks={"hibari": needs_hibari, "flite": needs_flite}[voice.synthesiser],
    )
    for voice in VOICES
]


def seconds(voice: Voice, tempo: float = 1.0) -> float:
    audio, rate = voice.speak(TEXT, tempo=tempo, pitch=1.0, seed=0)
    return len(audio) / rate


def pitch_hz(voice: Voice, pitch: float) -> float:
    """Median over voiced frames of the lag at which a frame resembles itself most."""
    audio, rate = voice.speak("We were all along. " * 3, tempo=1.0, pitch=pitch, seed=0)
    found = []
    for frame in np.lib.stride_tricks.sliding_window_view(audio, rate // 16)[:: rate // 50]:
        spectrum = np.fft.rfft(frame * np.hanning(len(frame)), 2 * len(frame))
        same = np.fft.irfft(np.abs(spectrum) ** 2)
        shortest, longest = rate // 350, rate // 60
        lag = int(same[shortest:longest].argmax()) + shortest
        if same[lag] > 0.5 * same[0] and same[0] > 1e-2:
            found.append(rate / lag)
    return float(np.median(found))


@pytest.mark.parametrize("voice", INSTALLED)
def test_a_voice_speaks_the_same_each_time(voice: Voice) -> None:
    voice.check()
    first, rate = voice.speak(TEXT, tempo=1.0, pitch=voice.pitches[0], seed=3)
    again, _ = voice.speak(TEXT, tempo=1.0, pitch=voice.pitches[0], seed=3)
    assert first.dtype == np.float32
    assert 2 < len(first) / rate < 8
    assert np.array_equal(first, again)


@pytest.mark.parametrize("voice", INSTALLED)
def test_a_faster_pace_takes_less_time(voice: Voice) -> None:
    assert seconds(voice, 0.8) > 1.1 * seconds(voice) > 1.2 * seconds(voice, 1.25)


@pytest.mark.parametrize("voice", INSTALLED)
def test_pitch_moves_the_fundamental(voice: Voice) -> None:
    low, high = voice.pitches
    if low == high:
        pytest.skip("this voice has one pitch")
    assert pitch_hz(voice, high) / pitch_hz(voice, low) == pytest.approx(high / low, rel=0.12)


@needs_flite
def test_flite_that_lacks_a_voice_is_an_error_that_names_it() -> None:
    with pytest.raises(VoiceError, match="flite has no voice nobody"):
        Voice("flite", "nobody", 1.0, (1.0, 1.0)).check()


@needs_flite
def test_a_text_without_words_is_an_error_that_quotes_it() -> None:
    with pytest.raises(VoiceError, match="flite-slt said nothing for ''"):
        Voice("flite", "slt", 1.0, (1.0, 1.0)).speak("", tempo=1.0, pitch=1.0, seed=0)


def test_a_missing_flite_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    voices.flite_voices.cache_clear()
    with pytest.raises(VoiceError, match="apt install flite"):
        Voice("flite", "slt", 1.0, (1.0, 1.0)).check()


def test_a_missing_hibari_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hibari", None)
    voices.hibari_voice.cache_clear()
    with pytest.raises(VoiceError, match=r"pip install 'captiond\[training\]'"):
        Voice("hibari", "heart", 1.0, (1.0, 1.0)).check()
