"""Recordings in every container and codec that clients send, made by libav of the bundled sample."""

import io

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import OutputContainer
from numpy.typing import NDArray

from tests.support.wire import speech

# Container, codec, sample rate, layout.
KINDS = {
    "ogg-opus": ("ogg", "libopus", 48_000, "mono"),
    "webm-opus": ("webm", "libopus", 48_000, "stereo"),
    "mp3": ("mp3", "libmp3lame", 16_000, "mono"),
    "m4a-aac": ("mp4", "aac", 44_100, "stereo"),
    "aac": ("adts", "aac", 16_000, "mono"),
    "flac": ("flac", "flac", 16_000, "mono"),
    "wav-mulaw": ("wav", "pcm_mulaw", 8_000, "mono"),
    "wav-alaw": ("wav", "pcm_alaw", 8_000, "mono"),
    "wav": ("wav", "pcm_s16le", 48_000, "stereo"),
}


def spoken(seconds: float = 4.0) -> NDArray[np.int16]:
    """The beginning of the sample: int16 [samples], 16 kHz."""
    return np.frombuffer(speech(), "<i2")[: round(seconds * 16_000)]


def encoded(kind: str, samples: NDArray[np.int16] | None = None) -> bytes:
    """A file of that kind."""
    container, codec, rate, layout = KINDS[kind]
    made = io.BytesIO()
    with av.open(made, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        assert isinstance(stream, AudioStream)
        _encode(output, stream, samples if samples is not None else spoken())
    return made.getvalue()


def video(samples: NDArray[np.int16] | None = None) -> bytes:
    """MP4 with pictures beside the sound."""
    made = io.BytesIO()
    samples = samples if samples is not None else spoken()
    with av.open(made, "w", format="mp4") as output:
        pictures = output.add_stream("mpeg4", rate=5)
        pictures.width, pictures.height, pictures.pix_fmt = 64, 64, "yuv420p"
        sound = output.add_stream("aac", rate=16_000, layout="mono")
        for number in range(len(samples) * 5 // 16_000):
            grey = np.full((64, 64, 3), number * 9 % 256, np.uint8)
            output.mux(pictures.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")))
        output.mux(pictures.encode(None))
        _encode(output, sound, samples)
    return made.getvalue()


def _encode(output: OutputContainer, stream: AudioStream, samples: NDArray[np.int16]) -> None:
    resampler = av.AudioResampler(
        format=stream.codec_context.format,
        layout=stream.codec_context.layout,
        rate=stream.codec_context.sample_rate,
        frame_size=stream.codec_context.frame_size or 1024,
    )
    frame = AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
    frame.sample_rate = 16_000
    for piece in [*resampler.resample(frame), *resampler.resample(None)]:
        output.mux(stream.encode(piece))
    output.mux(stream.encode(None))
