"""Bytes of the announced format in, 16 kHz mono float32 out; exact to the sample.

The file knows formats, counts and one resampler; no voice, no utterance and no clock.
"""

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import soxr
from numpy.typing import NDArray

from streaming.mixdown import Mixdown
from streaming.protocol import SAMPLE_BYTES, SAMPLE_RATE, Encoding, ProtocolError

MAX_HEADER_BYTES = 65_536  # a longer WAV header holds more than a format
SLICES_PER_SECOND = 2  # the most that one `read` decodes, however long the frame

# RIFF format tag and bits per sample → the protocol's name.
_WAV_ENCODINGS: Final[dict[tuple[int, int], Encoding]] = {
    (1, 16): "s16le",
    (3, 32): "f32le",
    (6, 8): "alaw",
    (7, 8): "mulaw",
}
_WAV_EXTENSIBLE = 0xFFFE  # the true tag is at the start of the sub-format GUID
_CHUNK_HEAD = struct.Struct("<4sI")
_FMT = struct.Struct("<HHIIHH")  # tag, channels, rate, bytes per second, block, bits per sample
_SUBFORMAT_OFFSET = 24


def _mulaw_table() -> NDArray[np.float32]:  # [256], ITU-T G.711 table 2a at 16-bit scale
    code = ~np.arange(256) & 0xFF
    magnitude = ((((code & 0x0F) << 3) + 0x84) << ((code >> 4) & 7)) - 0x84
    return (np.where(code & 0x80, -magnitude, magnitude) / 32_768).astype(np.float32)


def _alaw_table() -> NDArray[np.float32]:  # [256], ITU-T G.711 table 1a at 16-bit scale
    code = np.arange(256) ^ 0x55
    exponent, mantissa = (code >> 4) & 7, (code & 0x0F) << 4
    magnitude = np.where(
        exponent == 0, mantissa + 8, (mantissa + 0x108) << np.maximum(exponent - 1, 0)
    )
    return (np.where(code & 0x80, magnitude, -magnitude) / 32_768).astype(np.float32)


_G711: Final = {"mulaw": _mulaw_table(), "alaw": _alaw_table()}


def _to_float(data: memoryview, encoding: Encoding) -> NDArray[np.float32]:
    """Whole samples of `encoding`, finite ones, as float32 in [-1, 1], still interleaved.

    f32le beyond ±1 is clipped, as a sound card would.
    """
    if encoding == "s16le":
        return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32_768)
    if encoding == "f32le":
        return np.frombuffer(data, "<f4").clip(-1.0, 1.0).astype(np.float32, copy=False)
    return _G711[encoding][np.frombuffer(data, np.uint8)]


@dataclass(frozen=True, slots=True)
class _Format:
    encoding: str
    rate: int
    channels: int

    def __str__(self) -> str:
        return f"{self.encoding}, {self.rate} Hz, {self.channels} channel(s)"


class _HeaderSkipper:
    """Removes a RIFF/WAVE header from the very start of a stream, however it is split.

    Four bytes decide: real audio begins with `RIFF` once in four thousand million streams. What
    follows the data chunk is passed on, for its stated size is often wrong in streamed files.
    """

    def __init__(self, announced: _Format) -> None:
        self._announced = announced
        self._found: _Format | None = None
        self._head = bytearray()
        self._chunk = 12  # offset of the present chunk
        self._done = False
        self._refusal: ProtocolError | None = None
        self._refused = 0

    @property
    def withheld(self) -> int:
        """Bytes that are neither audio nor a header: refused ones, and an incomplete header."""
        return self._refused + len(self._head)

    def feed(self, data: bytes) -> bytes:
        """The audio in `data`. Raises ProtocolError, then and ever after, for a wrong header."""
        if self._done:
            return data
        if self._refusal is not None:
            self._refused += len(data)
            raise self._refusal
        self._head += data
        magic = bytes(self._head[:4])
        if not b"RIFF".startswith(magic):
            return self._release(0)
        if len(self._head) < 12:
            return b""
        try:
            return self._walk()
        except ProtocolError as error:
            self._refusal = error
            self._refused = len(self._head)
            self._head.clear()
            raise

    def finish(self) -> bytes:
        """The bytes of a stream of fewer than four: they are audio."""
        undecided = 0 < len(self._head) < 4
        return self._release(0) if undecided else b""

    def _release(self, start: int) -> bytes:
        self._done = True
        audio = bytes(self._head[start:])
        self._head.clear()
        return audio

    def _walk(self) -> bytes:
        if self._head[8:12] != b"WAVE":
            raise ProtocolError("bad_audio", "the stream begins with a RIFF file that is not WAVE")
        while len(self._head) >= self._chunk + _CHUNK_HEAD.size:
            name, size = _CHUNK_HEAD.unpack_from(self._head, self._chunk)
            body = self._chunk + _CHUNK_HEAD.size
            if name == b"data":
                self._check()
                return self._release(body)
            after = body + size + size % 2  # chunks are padded to even lengths
            if after > MAX_HEADER_BYTES:
                raise ProtocolError(
                    "bad_audio",
                    f"WAV header: no audio data within {MAX_HEADER_BYTES} bytes; send raw samples",
                )
            if len(self._head) < after:
                break
            if name == b"fmt ":
                self._found = _read_fmt(bytes(self._head[body:after]))
            self._chunk = after
        return b""

    def _check(self) -> None:
        if self._found != self._announced:
            found = "no format" if self._found is None else str(self._found)
            raise ProtocolError(
                "bad_audio",
                f"the WAV header says {found}, but start announced {self._announced}: "
                "announce what the file holds, or convert it",
            )


def _read_fmt(body: bytes) -> _Format:
    if len(body) < _FMT.size:
        raise ProtocolError("bad_audio", "WAV header: the format chunk is too short")
    tag, channels, rate, _, _, bits = _FMT.unpack_from(body)
    if tag == _WAV_EXTENSIBLE and len(body) >= _SUBFORMAT_OFFSET + 2:
        (tag,) = struct.unpack_from("<H", body, _SUBFORMAT_OFFSET)
    encoding = _WAV_ENCODINGS.get((tag, bits), f"format tag {tag} of {bits} bits")
    return _Format(encoding, rate, channels)


class AudioDecoder:
    """One stream's bytes to 16 kHz mono, with one resampler from the first sample to the last.

    Bytes are taken a frame at a time and read in slices, so that a long frame costs no long turn.
    A sample split between two frames is carried over; channels are mixed down; a WAV header at the
    start is skipped. The output is the same however the input is cut into frames.

    channel: the only one to hear; None for all. Raises ProtocolError("bad_request") where there is none.
    """

    def __init__(
        self, encoding: Encoding, rate: int, channels: int, channel: int | None = None
    ) -> None:
        if channel is not None and channel >= channels:
            raise ProtocolError(
                "bad_request", f"there is no channel {channel} of {channels}: the first is 0"
            )
        self._mixdown = Mixdown(rate, channels, channel)
        self._encoding = encoding
        self._rate = rate
        self._frame_bytes = SAMPLE_BYTES[encoding] * channels
        self._slice_bytes = rate // SLICES_PER_SECOND * self._frame_bytes
        self._header = _HeaderSkipper(_Format(encoding, rate, channels))
        self._unread = memoryview(b"")
        self._read = 0  # sample frames at the input rate
        self._refused = 0  # bytes of whole sample frames
        self._emitted = 0  # samples at 16 kHz
        self._resampler = (
            None
            if rate == SAMPLE_RATE
            else soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ")
        )

    @property
    def received(self) -> int:
        """Samples at 16 kHz of the whole input, refused ones included; counted at the input."""
        return self.position + self.refused

    @property
    def position(self) -> int:
        """Samples at 16 kHz of the whole input that were not refused, held back or not."""
        return self._at_16k(self._read)

    @property
    def refused(self) -> int:
        """Samples at 16 kHz of refused frames, and of an incomplete WAV header."""
        return self._at_16k((self._refused + self._header.withheld) // self._frame_bytes)

    @property
    def unread(self) -> bool:
        """Whether `read` has more to give."""
        return len(self._unread) >= self._frame_bytes

    def take(self, data: bytes) -> None:
        """Take a frame of any length; the frame before must have been read.

        Raises ProtocolError("bad_audio") for NaN or infinity in it: the whole frame is refused, and
        the stream goes on; and for a WAV header of another format: nothing more can be decoded.
        """
        self._admit(self._header.feed(data))

    def read(self) -> NDArray[np.float32]:
        """The next slice of the frame taken, half a second at most: [samples], 16 kHz mono in [-1, 1].

        The resampler holds back 30 to 100 ms until more comes or `finish` is called.
        """
        size = min(len(self._unread) - len(self._unread) % self._frame_bytes, self._slice_bytes)
        data, self._unread = self._unread[:size], self._unread[size:]
        if not self.unread:
            self._unread = memoryview(bytes(self._unread))  # a view would keep the frame alive
        frames = size // self._frame_bytes
        self._read += frames
        samples = self._mixdown.mix(_to_float(data, self._encoding))
        if self._resampler is not None:
            # The filter may overshoot full scale.
            samples = self._resampler.resample_chunk(samples).clip(-1.0, 1.0)
        self._emitted += len(samples)
        return samples

    def finish(self) -> NDArray[np.float32]:
        """The samples that the resampler held back, after the last `read`: [samples]. More may follow.

        Afterwards the samples emitted since the beginning are exactly the input's frames times
        16,000 / rate, rounded half up. soxr keeps this for one stretch; over several the
        roundings add up, so that a stretch may end a sample earlier or later.
        """
        self._admit(self._header.finish())
        head = self.read()
        if self._resampler is None:
            return head
        tail = self._resampler.resample_chunk(np.zeros(0, np.float32), last=True).clip(-1.0, 1.0)
        self._resampler.clear()
        missing = self._at_16k(self._read) - self._emitted - len(tail)
        tail = np.pad(tail, (0, missing)) if missing > 0 else tail[: len(tail) + missing]
        self._emitted += len(tail)
        return np.concatenate([head, tail])

    def _admit(self, data: bytes) -> None:
        assert not self.unread, "a frame was taken before the last one was read"
        audio = memoryview(bytes(self._unread) + data)
        whole = len(audio) - len(audio) % self._frame_bytes
        if self._encoding == "f32le" and not np.isfinite(np.frombuffer(audio[:whole], "<f4")).all():
            self._refused += whole
            self._unread = memoryview(bytes(audio[whole:]))
            raise ProtocolError(
                "bad_audio",
                "f32le frame holds NaN or infinity: the frame is refused; send finite samples in [-1, 1]",
            )
        self._unread = audio

    def _at_16k(self, frames: int) -> int:
        return (2 * frames * SAMPLE_RATE + self._rate) // (2 * self._rate)
