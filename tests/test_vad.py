from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming import vad
from streaming.foreground import Foreground
from streaming.vad import detector
from tests.support.audio import needs_audio, read, recordings
from tests.support.streams import coloured_noise, frames_of

MINIMUM = 4  # frames: the shortest burst that opens an utterance with minimum_speech_ms = 120


class Always:
    """A detector that takes everything for speech."""

    frame = vad.FRAME

    def __init__(self) -> None:
        self.heard = 0

    def is_speech(self, frame: NDArray[np.float32]) -> bool:
        self.heard += 1
        return True


def frames(audio: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    return frames_of(vad.FRAME, audio)


def longest_burst(detector: vad.VoiceActivity, audio: NDArray[np.float32]) -> int:
    """The most frames of speech on end."""
    longest = burst = 0
    for frame in frames(audio):
        burst = burst + 1 if detector.is_speech(frame) else 0
        longest = max(longest, burst)
    return longest


def gated() -> vad.NoiseGate:
    return vad.NoiseGate(vad.WebRtcVad(0))


def test_detectors_are_chosen_by_name() -> None:
    """Of each only the foreground is heard."""
    silero, webrtc = detector("silero", 0), detector("webrtc", 3)
    assert isinstance(silero, Foreground)
    assert isinstance(webrtc, Foreground)
    assert type(silero.detector).__name__ == "Silero"
    assert isinstance(webrtc.detector, vad.NoiseGate)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_a_frame_is_one_that_webrtcvad_takes(mode: int) -> None:
    """Any other length is an error in webrtcvad."""
    assert vad.WebRtcVad(mode).is_speech(np.zeros(vad.WebRtcVad.frame, np.float32)) is False


@pytest.mark.parametrize("colour", ["white", "pink", "brown", "hum"])
@pytest.mark.parametrize("dbfs", [-50, -40, -30, -20])
def test_steady_noise_gives_no_burst(colour: str, dbfs: int) -> None:
    assert longest_burst(gated(), coloured_noise(colour, dbfs, 60)) < MINIMUM


def test_webrtcvad_alone_would_take_noise_for_speech() -> None:
    """Why there is a gate."""
    assert longest_burst(vad.WebRtcVad(3), coloured_noise("white", -20, 10)) > 300


def test_digital_silence_gives_no_burst() -> None:
    assert longest_burst(gated(), np.zeros(60 * 16_000, np.float32)) == 0


@pytest.mark.parametrize("milliseconds", [1, 10, 50])
def test_clicks_give_no_burst_of_the_minimum(milliseconds: int) -> None:
    audio = np.zeros(60 * 16_000, np.float32)
    random = np.random.default_rng(4)
    for start in range(0, len(audio) - 16_000, 16_007):
        click = random.standard_normal(milliseconds * 16) * 0.3
        audio[start : start + len(click)] = click
    assert longest_burst(gated(), audio) < MINIMUM


def test_noise_that_sets_in_is_silent_within_three_seconds() -> None:
    """After digital silence everything stands out, until the silence is three seconds old."""
    gate = gated()
    audio = np.concatenate([np.zeros(5 * 16_000, np.float32), coloured_noise("white", -20, 20)])
    judged = [gate.is_speech(frame) for frame in frames(audio)]
    old = 5 * 16_000 // vad.FRAME + vad.FLOOR_FRAMES + 3
    assert any(judged[:old])
    assert not any(judged[old:])


def gate_after(floor: NDArray[np.float32]) -> vad.NoiseGate:
    """A gate that knows this frame as the noise."""
    gate = vad.NoiseGate(Always())
    assert not any(gate.is_speech(floor) for _ in range(10))
    return gate


@pytest.mark.parametrize(("decibels", "opens"), [(-0.1, False), (0.1, True)])
def test_the_gate_opens_for_what_exceeds_the_margin(decibels: float, *, opens: bool) -> None:
    floor = coloured_noise("white", -50, 1)[: vad.FRAME]
    louder = floor * np.float32(10 ** ((vad.MARGIN_DB + decibels) / 20))
    assert gate_after(floor).is_speech(louder) is opens


@pytest.mark.parametrize(
    ("frequency", "opens"), [(50, False), (300, True), (700, True), (3_000, True), (6_000, False)]
)
def test_a_tone_opens_the_gate_if_a_voice_could_hold_it(frequency: int, *, opens: bool) -> None:
    floor = coloured_noise("white", -50, 1)[: vad.FRAME]
    tone = 0.01 * np.sin(2 * np.pi * frequency * np.arange(vad.FRAME) / 16_000)
    assert gate_after(floor).is_speech((floor + tone).astype(np.float32)) is opens


def test_the_detector_hears_every_frame() -> None:
    """The detector adapts to the noise that the gate holds back."""
    detector = Always()
    gate = vad.NoiseGate(detector)
    for frame in frames(np.zeros(10 * vad.FRAME, np.float32)):
        gate.is_speech(frame)
    assert detector.heard == 10
    assert gate.frame == detector.frame


@needs_audio
def test_every_spoken_digit_is_a_burst() -> None:
    silence = np.zeros(8_000, np.float32)
    digits = recordings(under="free_spoken_digits/")
    bursts = {
        digit.name: longest_burst(gated(), np.concatenate([silence, digit.audio(), silence]))
        for digit in digits
    }
    assert len(bursts) == 83
    assert {name for name, burst in bursts.items() if burst < MINIMUM} == set()


@needs_audio
@pytest.mark.parametrize("colour", ["white", "pink", "brown", "hum"])
@pytest.mark.parametrize("name", ["1688-142285-0000", "1998-15444-0003", "2033-164914-0001"])
def test_speech_is_heard_through_noise(name: str, colour: str) -> None:
    """At a signal-to-noise ratio of 10 dB, half of the frames judged speech without noise still are.

    The rest lie between words, or are weak consonants: pre-roll and endpoint silence cover them.
    """
    speech = read(f"librispeech_testother_resemblyzer/{name}.flac")
    level = 20 * np.log10(np.sqrt(np.mean(np.square(speech))))
    noisy = (speech + coloured_noise(colour, level - 10, 40)[: len(speech)]).clip(-1, 1)
    clean_gate, noisy_gate = gated(), gated()
    clean = sum(clean_gate.is_speech(frame) for frame in frames(speech))
    through = sum(noisy_gate.is_speech(frame) for frame in frames(noisy))
    assert clean > 0.5 * len(speech) / vad.FRAME
    assert through > 0.5 * clean
