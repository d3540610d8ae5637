"""Sound out of containers: any file or stream that libav reads, as blocks of samples.

Opens nothing but what it is given: no demuxer that would open other files or addresses is allowed. A hostile file
may exhaust time and memory, or crash libav; who reads strangers' files does so in a process of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import av
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.container import InputContainer
from av.error import FFmpegError, InvalidDataError

from streaming.protocol import Encoding

# libav's names. Playlists (hls, dash, concat) are left out: they name other files.
DEMUXERS = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,eac3,flac,flv,gsm,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,"
    "mp3,mpeg,mpegts,ogg,tta,voc,w64,wav,wv"
)
EXACT_IN_INT16 = frozenset({"s16", "s16p", "u8", "u8p"})
MOST_CHANNELS = 16  # what a session takes; more are mixed down to two
MOST_DAMAGED = 50  # packets in a row that cannot be decoded, after which the rest is given up
BLOCK = 2**15  # bytes of a block, at least, but for the last


class ContainerError(Exception):
    """Nothing can be decoded; the text says why, for a person."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A file's best audio stream. duration: seconds that its container claims, 0 where it claims none.

    blocks: interleaved samples, to be read once; raises ContainerError where the file is damaged.
    """

    encoding: Encoding
    rate: int
    channels: int
    duration: float
    blocks: Iterator[bytes]


@contextmanager
def recording(file: BinaryIO | str) -> Iterator[Recording]:
    """Open `file`, a path or a binary stream that need not be seekable. Raises ContainerError."""
    try:
        container = av.open(
            file,
            "r",
            options={"format_whitelist": DEMUXERS, "protocol_whitelist": "file"},
            metadata_errors="ignore",
        )
    except (FFmpegError, ValueError, UnicodeError) as error:
        raise ContainerError(f"not audio or video that can be read ({_why(error)})") from None
    with container:
        frames = _frames(container)
        first = next(frames, None)
        if first is None:
            raise ContainerError("the file holds no sound")
        exact = first.format.name in EXACT_IN_INT16
        channels = first.layout.nb_channels
        layout = first.layout if channels <= MOST_CHANNELS else "stereo"
        yield Recording(
            encoding="s16le" if exact else "f32le",
            rate=first.sample_rate,
            channels=channels if channels <= MOST_CHANNELS else 2,
            duration=(container.duration or 0) / av.time_base,
            blocks=_blocks(_packed(first, frames, "s16" if exact else "flt", layout)),
        )


def _frames(container: InputContainer) -> Iterator[AudioFrame]:
    """The decoded frames; damaged packets are left out. Raises ContainerError where nothing else comes."""
    stream = container.streams.best("audio")
    if stream is None:
        raise ContainerError("the file holds no sound")
    damaged, decoded = 0, False
    try:
        for packet in container.demux(stream):
            try:
                for frame in packet.decode():
                    assert isinstance(frame, AudioFrame)
                    damaged, decoded = 0, True
                    yield frame
            except InvalidDataError:
                damaged += 1
                if damaged >= MOST_DAMAGED:
                    raise
    except FFmpegError as error:
        raise ContainerError(f"the file is damaged ({_why(error)})") from None
    if damaged and not decoded:
        raise ContainerError("the file is damaged: nothing in it can be decoded")


def _packed(
    first: AudioFrame, rest: Iterator[AudioFrame], form: str, layout: object
) -> Iterator[bytes]:
    """Interleaved samples at the first frame's rate, also where the stream changes its format."""
    rate, known = first.sample_rate, None
    resampler: AudioResampler | None = None
    for frame in _chained(first, rest):
        kind = frame.format.name, frame.layout.name, frame.sample_rate
        if kind != known:
            if resampler is not None:
                yield from map(_bytes, resampler.resample(None))
            resampler = AudioResampler(format=form, layout=layout, rate=rate)  # type: ignore[arg-type]  # a name or a layout
            known = kind
        assert resampler is not None
        frame.pts = None  # gaps are not filled
        yield from map(_bytes, resampler.resample(frame))
    if resampler is not None:
        yield from map(_bytes, resampler.resample(None))


def _chained(first: AudioFrame, rest: Iterator[AudioFrame]) -> Iterator[AudioFrame]:
    yield first
    yield from rest


def _bytes(frame: AudioFrame) -> bytes:
    size = frame.samples * frame.layout.nb_channels * frame.format.bytes
    return bytes(frame.planes[0])[:size]  # a plane is padded


def _blocks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces, joined to a size that is worth passing on. They may be few bytes each."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= BLOCK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if size:
        yield b"".join(waiting)


def _why(error: Exception) -> str:
    """Libav's own words, without the name of a file that the client never gave."""
    return getattr(error, "strerror", None) or str(error)
