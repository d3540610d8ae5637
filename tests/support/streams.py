"""Made and recorded sound, and a detector and hypotheses to go with it, for `streaming.session`."""

import io
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import soundfile
from numpy.typing import NDArray

from streaming.hypothesis import Hypothesis
from streaming.protocol import Closed, Encoding, Start
from streaming.session import Output, Session
from streaming.settings import Settings
from streaming.utterance import Decode
from streaming.vad import FRAME

RATE = 16_000
Samples = NDArray[np.float32]


class Loudness:
    """A detector whose judgement the test writes into the audio: loud is speech."""

    frame = FRAME

    def is_speech(self, frame: Samples) -> bool:
        return bool(np.abs(frame).max() > 0.1)


@dataclass(frozen=True)
class GoodHypothesis(Hypothesis):
    """A hypothesis with figures that nothing is wrong with."""

    language: str = "en"
    certain: int = 1_000
    no_speech: float = 0.25
    mean_logprob: float = -0.5
    compression_ratio: float = 0.9
    rounds: int = 4
    proposed: int = 9
    accepted: int = 7
    reused: int = 3


def session(settings: Settings | None = None, **start: object) -> Session:
    """In English unless the test says otherwise, so that half a second is enough for a partial."""
    start = {"language": "en"} | start
    return Session(Start(**start), settings or Settings(), vad=Loudness())  # type: ignore[arg-type]  # any fields


def loud(seconds: float) -> Samples:
    return np.random.default_rng(5).uniform(-0.5, 0.5, round(seconds * RATE)).astype(np.float32)


def quiet(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), np.float32)


def frames(*audio: Samples) -> list[bytes]:
    """int16 bytes, a detector's frame at a time."""
    return cut(s16(*audio), [2 * FRAME])


def feed(stream: Session, data: bytes) -> list[Output]:
    """Feed one frame, and hear all of it."""
    outputs = stream.feed(data)
    while stream.unprocessed:
        outputs += stream.process()
    return outputs


def feed_all(stream: Session, *audio: Samples) -> list[Output]:
    """Feed a stream of int16 frame by frame."""
    return [output for frame in frames(*audio) for output in feed(stream, frame)]


def s16(*audio: Samples) -> bytes:
    return (np.concatenate(audio) * 32_767).astype("<i2").tobytes()


def g711(audio: Samples, subtype: str) -> bytes:
    """μ-law or A-law bytes as libsndfile writes them."""
    file = io.BytesIO()
    soundfile.write(file, audio, 8_000, subtype=subtype, format="RAW")
    return file.getvalue()


def encoded(audio: Samples, encoding: Encoding, channels: int) -> bytes:
    """`audio` in every channel, interleaved."""
    audio = np.repeat(audio, channels)
    match encoding:
        case "s16le":
            return s16(audio)
        case "f32le":
            return audio.astype("<f4").tobytes()
        case "mulaw":
            return g711(audio, "ULAW")
        case "alaw":
            return g711(audio, "ALAW")


def decodes(outputs: Iterable[Output]) -> list[Decode]:
    return [output for output in outputs if isinstance(output, Decode)]


def finals(outputs: Iterable[Output]) -> list[Decode]:
    return [decode for decode in decodes(outputs) if decode.final]


def partials(outputs: Iterable[Output]) -> list[Decode]:
    return [decode for decode in decodes(outputs) if not decode.final and not decode.early]


def earlies(outputs: Iterable[Output]) -> list[Decode]:
    return [decode for decode in decodes(outputs) if decode.early]


def answer(stream: Session, outputs: Iterable[Output]) -> list[Output]:
    """Accept every decode at once, each with its range as text, and those that follow."""
    answered: list[Output] = []
    for decode in decodes(outputs):
        told = stream.accept(decode, GoodHypothesis(f"{decode.start} {decode.stop}"), ms=5.0)
        answered += [*told, *answer(stream, told)]
    return answered


def ranges(outputs: Iterable[Output]) -> list[tuple[int, int]]:
    return [(decode.start, decode.stop) for decode in finals(outputs)]


def closing(outputs: list[Output]) -> Closed:
    assert isinstance(outputs[-1], Closed)
    return outputs[-1]


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data` in frames of these sizes, over and over."""
    edges = [0]
    for size in itertools.cycle(sizes):
        if edges[-1] >= len(data):
            break
        edges.append(edges[-1] + size)
    return [data[start:stop] for start, stop in itertools.pairwise(edges)]


def frames_of(size: int, audio: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    for at in range(0, len(audio) - size + 1, size):
        yield audio[at : at + size]


def coloured_noise(colour: str, dbfs: float, seconds: int) -> NDArray[np.float32]:
    """Noise whose power falls with frequency as its colour says, or mains hum with overtones."""
    size = seconds * 16_000
    white = np.random.default_rng(3).standard_normal(size)
    frequency = np.maximum(np.fft.rfftfreq(size, 1 / 16_000), 20.0)
    spectrum = np.fft.rfft(white)
    time = np.arange(size) / 16_000
    signal = {
        "white": white,
        "pink": np.fft.irfft(spectrum / np.sqrt(frequency)),
        "brown": np.fft.irfft(spectrum / frequency),
        "hum": sum(np.sin(2 * np.pi * 50 * n * time + n) / n for n in range(1, 8)),
    }[colour]
    signal = signal / np.sqrt(np.mean(np.square(signal))) * 10 ** (dbfs / 20)
    return np.asarray(signal.clip(-1.0, 1.0), np.float32)
