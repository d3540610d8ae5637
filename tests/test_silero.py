import sys

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray

from streaming.protocol import Start
from streaming.session import Session
from streaming.settings import Settings
from streaming.silero import FRAME, DetectorError, Silero, network
from tests.support.audio import needs_audio, read, recordings
from tests.support.streams import coloured_noise, feed, frames_of, ranges

RATE = 16_000
Samples = NDArray[np.float32]


def utterances(audio: Samples, *, chunk: int = RATE) -> list[tuple[int, int]]:
    """Ranges that a session with default settings cuts `audio` into, fed in chunks of samples."""
    stream = Session(Start(encoding="f32le", partials=False), Settings())
    outputs = []
    for at in range(0, len(audio), chunk):
        outputs += feed(stream, audio[at : at + chunk].astype("<f4").tobytes())
    return ranges([*outputs, *stream.stop()])


def background(seconds: float) -> Samples:
    """What a quiet room sounds like: noise at -80 dBFS."""
    return 1e-4 * np.random.default_rng(0).standard_normal(round(seconds * RATE)).astype(np.float32)


def speech() -> Samples:
    return read("librispeech_testother_resemblyzer/1998-15444-0003.flac")


@pytest.mark.parametrize("colour", ["white", "pink", "brown", "hum"])
@pytest.mark.parametrize("dbfs", [-50, -20])
def test_steady_noise_opens_no_utterance(colour: str, dbfs: int) -> None:
    assert utterances(coloured_noise(colour, dbfs, 15)) == []


def test_silence_and_clicks_open_no_utterance() -> None:
    audio = np.zeros(20 * RATE, np.float32)
    random = np.random.default_rng(4)
    for start in range(RATE, len(audio) - RATE, 16_007):
        audio[start : start + 160] = 0.3 * random.standard_normal(160)
    assert utterances(np.zeros(20 * RATE, np.float32)) == []
    assert utterances(audio) == []


@needs_audio
@pytest.mark.parametrize("name", ["moh__macroform-cold_day.flac", "howl__exercise_bike.flac"])
def test_music_and_machines_open_no_utterance(name: str) -> None:
    assert utterances(read(f"nonspeech/{name}")[: 20 * RATE]) == []


def telephone(audio: Samples) -> Samples:
    """300 to 3,400 Hz at 8 kHz and back."""
    narrow = soxr.resample(audio, RATE, 8_000)
    spectrum = np.fft.rfft(narrow)
    frequency = np.fft.rfftfreq(len(narrow), 1 / 8_000)
    spectrum[(frequency < 300) | (frequency > 3_400)] = 0
    band = np.fft.irfft(spectrum, len(narrow)).astype(np.float32)
    return np.asarray(soxr.resample(band, 8_000, RATE), np.float32)


@needs_audio
@pytest.mark.parametrize("carried", ["whole", "telephone"])
def test_speech_is_heard_from_its_first_word_to_its_last(carried: str) -> None:
    """Soft onsets and offsets lie within the pre-roll and the post-roll."""
    audio = speech() if carried == "whole" else telephone(speech())
    loud = np.flatnonzero(np.abs(audio) > 0.1 * np.abs(audio).max())
    spans = utterances(np.concatenate([background(1), audio, background(1)]))
    assert spans[0][0] <= RATE + loud[0]
    assert spans[-1][1] >= RATE + loud[-1]


@needs_audio
@pytest.mark.parametrize("colour", ["white", "pink", "brown", "hum"])
def test_an_utterance_ends_though_the_noise_goes_on(colour: str) -> None:
    audio = np.concatenate([np.zeros(RATE, np.float32), speech(), np.zeros(3 * RATE, np.float32)])
    level = 20 * np.log10(np.sqrt(np.mean(np.square(speech()))))
    noisy = (audio + coloured_noise(colour, level - 10, 40)[: len(audio)]).clip(-1, 1)
    spans = utterances(noisy)
    assert spans
    assert abs(spans[-1][1] - (RATE + len(speech()))) < RATE / 2


@needs_audio
@pytest.mark.parametrize("around", [0.0, 0.4])
def test_single_digits_are_heard(around: float) -> None:
    digits = recordings(under="free_spoken_digits/")
    quiet = background(around)
    silent = [
        digit.name
        for digit in digits
        if not utterances(np.concatenate([quiet, digit.audio(), quiet]))
    ]
    assert len(digits) == 83
    assert silent == []


@needs_audio
def test_chunks_change_nothing() -> None:
    assert utterances(speech(), chunk=997) == utterances(speech(), chunk=len(speech()))


@needs_audio
def test_sessions_share_the_network_and_not_its_memory() -> None:
    alone, beside, other = Silero(), Silero(), Silero()
    audio = speech()[: 3 * RATE]
    wanted = [alone.probability(frame) for frame in frames_of(FRAME, audio)]
    heard = []
    for frame in frames_of(FRAME, audio):
        heard.append(beside.probability(frame))
        other.probability(frame[::-1].copy())
    assert heard == wanted
    assert max(wanted) > 0.9


def test_what_is_missing_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    network.cache_clear()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(DetectorError, match=r"silero-vad and onnxruntime.*vad = webrtc"):
        Silero()
