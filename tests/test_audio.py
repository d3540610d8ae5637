import io
import itertools
import struct

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streaming.audio import MAX_HEADER_BYTES, AudioDecoder
from streaming.protocol import SAMPLE_BYTES, Encoding, ProtocolError

ENCODINGS: list[Encoding] = ["s16le", "f32le", "mulaw", "alaw"]
SUBTYPES = {"s16le": "PCM_16", "f32le": "FLOAT", "mulaw": "ULAW", "alaw": "ALAW"}
RATES = [4_000, 8_000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 384_000]


def rounded(frames: int, rate: int) -> int:
    """`frames` at `rate` in 16 kHz samples, halves rounded up."""
    return int(np.floor(frames * 16_000 / rate + 0.5))


def read(decoder: AudioDecoder, data: bytes) -> NDArray[np.float32]:
    """All that a frame gives."""
    decoder.take(data)
    slices = [decoder.read()]
    while decoder.unread:
        slices.append(decoder.read())
    return np.concatenate(slices)


def decode_in_cuts(decoder: AudioDecoder, data: bytes, cuts: list[int]) -> NDArray[np.float32]:
    """Decode `data` in frames that end at `cuts`, then finish."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    frames = [data[start:stop] for start, stop in itertools.pairwise(edges)]
    return np.concatenate([*(read(decoder, frame) for frame in frames), decoder.finish()])


def expect(samples: NDArray[np.float32], *values: float) -> None:
    """Assert that these are the samples, exactly."""
    np.testing.assert_array_equal(samples, np.array(values, np.float32))


def wav(
    encoding: Encoding, rate: int, channels: int, container: str = "WAV"
) -> tuple[bytes, bytes]:
    """A WAV file of noise written by libsndfile, and its samples' bytes."""
    noise = np.random.default_rng(7).uniform(-0.5, 0.5, (50, channels))
    file = io.BytesIO()
    soundfile.write(file, noise, rate, subtype=SUBTYPES[encoding], format=container)
    size = 50 * channels * SAMPLE_BYTES[encoding]
    start = file.getvalue().index(b"data") + 8
    return file.getvalue(), file.getvalue()[start : start + size]


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    """A RIFF/WAVE file of these chunks."""
    body = b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
        for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


FMT_S16_MONO_16K = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)


@pytest.mark.parametrize("encoding", ["mulaw", "alaw"])
def test_g711_codes_decode_as_libsndfile_decodes_them(encoding: Encoding) -> None:
    codes = bytes(range(256))
    expected, _ = soundfile.read(
        io.BytesIO(codes),
        dtype="int16",
        format="RAW",
        subtype=SUBTYPES[encoding],
        channels=1,
        samplerate=16_000,
    )
    decoded = read(AudioDecoder(encoding, 16_000, 1), codes)
    np.testing.assert_array_equal(decoded * 32_768, expected)


@pytest.mark.parametrize(
    ("encoding", "channels", "data", "samples"),
    [
        ("s16le", 1, struct.pack("<3h", -32_768, 0, 32_767), [-1.0, 0.0, 32_767 / 32_768]),
        ("f32le", 1, struct.pack("<4f", -3e38, -0.5, 1.5, 3e38), [-1.0, -0.5, 1.0, 1.0]),
        ("f32le", 3, struct.pack("<6f", 0.25, 0.5, 0.0, -1, 1, 0.75), [0.25, 0.25]),
    ],
)
def test_full_scale_is_one_beyond_it_is_clipped_and_channels_are_averaged(
    encoding: Encoding, channels: int, data: bytes, samples: list[float]
) -> None:
    expect(read(AudioDecoder(encoding, 16_000, channels), data), *samples)


def test_a_resampled_square_wave_stays_within_full_scale() -> None:
    """The filter overshoots at the edges; what leaves does not."""
    square = np.where(np.arange(48_000) // 100 % 2, 1.0, -1.0).astype("<f4")
    decoded = decode_in_cuts(AudioDecoder("f32le", 48_000, 1), square.tobytes(), [])
    assert np.abs(decoded).max() == 1.0


@pytest.mark.parametrize("rate", [8_000, 22_050, 24_000, 44_100, 48_000])
def test_a_tone_keeps_its_place_and_level_through_the_resampler(rate: int) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 1_000 * np.arange(rate) / rate)
    decoded = decode_in_cuts(AudioDecoder("f32le", rate, 1), tone.astype("<f4").tobytes(), [])
    expected = 0.5 * np.sin(2 * np.pi * 1_000 * np.arange(16_000) / 16_000)
    middle = slice(1_000, -1_000)  # away from the sudden start and end
    np.testing.assert_allclose(decoded[middle], expected[middle], atol=1e-3)


@given(
    encoding=st.sampled_from(ENCODINGS),
    rate=st.sampled_from(RATES) | st.integers(4_000, 384_000),
    channels=st.integers(1, 16),
    frames=st.integers(0, 3_000),
    trailing=st.integers(0, 3),
    cuts=st.lists(st.integers(0, 10**6), max_size=12),
    seed=st.integers(0, 2**32 - 1),
)
def test_cuts_change_nothing_and_the_count_is_exact(
    *,
    encoding: Encoding,
    rate: int,
    channels: int,
    frames: int,
    trailing: int,
    cuts: list[int],
    seed: int,
) -> None:
    noise = np.random.default_rng(seed).uniform(-1, 1, frames * channels)
    data = {
        "s16le": (noise * 32_767).astype("<i2").tobytes(),
        "f32le": noise.astype("<f4").tobytes(),
    }.get(encoding, (noise * 127 + 128).astype(np.uint8).tobytes())
    data += b"\1" * min(trailing, channels * SAMPLE_BYTES[encoding] - 1)  # part of a further sample
    whole, cut = AudioDecoder(encoding, rate, channels), AudioDecoder(encoding, rate, channels)
    at_once = decode_in_cuts(whole, data, [])
    in_cuts = decode_in_cuts(cut, data, cuts)
    np.testing.assert_array_equal(at_once, in_cuts)
    assert len(at_once) == rounded(frames, rate)
    assert cut.received == rounded(frames, rate)
    assert cut.refused == 0


@given(
    rate=st.sampled_from(RATES), stretches=st.lists(st.integers(0, 500), min_size=1, max_size=20)
)
def test_the_count_stays_exact_over_many_stretches(rate: int, stretches: list[int]) -> None:
    decoder = AudioDecoder("s16le", rate, 1)
    emitted = 0
    for frames in stretches:
        emitted += len(read(decoder, b"\0\1" * frames)) + len(decoder.finish())
        assert emitted == decoder.received
    assert emitted == rounded(sum(stretches), rate)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_frame_with_a_non_finite_sample_is_refused_and_the_stream_goes_on(bad: float) -> None:
    decoder = AudioDecoder("f32le", 16_000, 1)
    with pytest.raises(ProtocolError, match="NaN or infinity") as caught:
        read(decoder, struct.pack("<3f", 0.1, bad, 0.2))
    assert caught.value.code == "bad_audio"
    assert decoder.refused == 3
    expect(read(decoder, struct.pack("<f", 0.25)), 0.25)
    assert decoder.received == 4


def test_a_refused_frame_leaves_the_byte_alignment_intact() -> None:
    """A sample that a refused frame completes is refused with it; one that it begins is not."""
    data = struct.pack("<4f", 0.5, np.nan, 0.125, 0.75)
    decoder = AudioDecoder("f32le", 16_000, 1)
    assert len(read(decoder, data[:2])) == 0
    with pytest.raises(ProtocolError, match="NaN or infinity"):
        read(decoder, data[2:9])
    assert decoder.refused == 2
    expect(read(decoder, data[9:]), 0.125, 0.75)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("container", ["WAV", "WAVEX"])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_right_wav_header_is_skipped(encoding: Encoding, container: str, channels: int) -> None:
    file, samples = wav(encoding, 16_000, channels, container)
    expected = read(AudioDecoder(encoding, 16_000, channels), samples)
    for cut in range(len(file) - len(samples)):
        decoder = AudioDecoder(encoding, 16_000, channels)
        if cut % 2:  # a flush before any audio hides no header
            assert len(decoder.finish()) == 0
        decoded = decode_in_cuts(decoder, file, [cut, cut + 1])
        np.testing.assert_array_equal(decoded[:50], expected)
        assert (decoder.received, decoder.refused) == (len(decoded), 0)


def test_chunks_before_the_audio_are_walked_over() -> None:
    """Chunks of odd length are padded; the word "data" inside one is no data chunk."""
    file = riff(
        (b"LIST", b"data!"), (b"fmt ", FMT_S16_MONO_16K), (b"odd ", b"x"), (b"data", b"\0@")
    )
    decoder = AudioDecoder("s16le", 16_000, 1)
    decoded = decode_in_cuts(decoder, file, list(range(len(file))))
    expect(decoded, 0.5)
    assert decoder.received == 1


@pytest.mark.parametrize(
    ("encoding", "rate", "channels", "found"),
    [
        ("f32le", 16_000, 1, "f32le, 16000 Hz, 1 channel"),
        ("s16le", 44_100, 1, "s16le, 44100 Hz, 1 channel"),
        ("s16le", 16_000, 2, "s16le, 16000 Hz, 2 channel"),
    ],
)
def test_a_wav_header_of_another_format_is_refused_naming_both(
    encoding: Encoding, rate: int, channels: int, found: str
) -> None:
    file, _ = wav(encoding, rate, channels)
    decoder = AudioDecoder("s16le", 16_000, 1)
    with pytest.raises(ProtocolError, match="start announced s16le, 16000 Hz, 1 channel") as caught:
        read(decoder, file)
    assert found in str(caught.value)
    assert caught.value.code == "bad_audio"


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b"RIFF\0\0\0\0AVI LIST", "not WAVE"),
        (riff((b"data", b"\0\0")), "no format"),
        (riff((b"fmt ", b"\1\0"), (b"data", b"\0\0")), "format chunk is too short"),
        (
            riff((b"fmt ", struct.pack("<HHIIHH", 2, 1, 8_000, 0, 0, 4)), (b"data", b"")),
            "tag 2 of 4",
        ),
        (riff((b"LIST", b"\0" * MAX_HEADER_BYTES)), f"within {MAX_HEADER_BYTES} bytes"),
    ],
)
def test_an_unusable_riff_file_is_refused_once_and_for_all(file: bytes, reason: str) -> None:
    """Bytes after the refusal are no audio either, however the stream is flushed: all are refused."""
    decoder = AudioDecoder("s16le", 16_000, 1)
    frames = iter([*(file[at : at + 1] for at in range(100)), file[100:], b"\0" * 100])
    with pytest.raises(ProtocolError, match=reason):
        sum(len(read(decoder, frame)) for frame in frames)
    assert len(decoder.finish()) == 0
    for frame in frames:
        with pytest.raises(ProtocolError, match=reason):
            read(decoder, frame)
    assert decoder.received == decoder.refused == (len(file) + 100) // 2


def test_a_header_that_is_never_complete_is_refused() -> None:
    """It is no audio, but it came."""
    decoder = AudioDecoder("s16le", 16_000, 1)
    assert len(read(decoder, riff((b"fmt ", FMT_S16_MONO_16K))[:30])) == 0
    assert len(decoder.finish()) == 0
    assert decoder.received == decoder.refused == 15


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_a_long_frame_is_read_half_a_second_at_a_time(encoding: Encoding, rate: int) -> None:
    decoder = AudioDecoder(encoding, rate, 2)
    decoder.take(b"\0" * (SAMPLE_BYTES[encoding] * 2 * rate * 3 // 2) + b"\0")
    lengths = []
    while decoder.unread:
        lengths.append(len(decoder.read()))
    assert len(lengths) == 3
    assert all(length <= 8_000 + 1_000 for length in lengths)  # and what was held back before
    assert sum(lengths) + len(decoder.finish()) == 24_000


@pytest.mark.parametrize("opening", [b"R\0", b"RI", b"RIF\0", b"RIFE", b"\0RIFF\0"])
def test_audio_that_opens_almost_like_a_header_is_audio(opening: bytes) -> None:
    expected = np.frombuffer(opening, "<i2").astype(np.float32) / 32_768
    decoded = decode_in_cuts(AudioDecoder("s16le", 16_000, 1), opening, [1, 2, 3])
    np.testing.assert_array_equal(decoded, expected)
