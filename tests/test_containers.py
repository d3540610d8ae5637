import io
from pathlib import Path

import numpy as np
import pytest
import soxr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streaming.containers import ContainerError, Recording, recording
from tests.support.recordings import KINDS, encoded, spoken, video


def samples(found: Recording) -> NDArray[np.float32]:
    """All of it: float32 [samples], 16 kHz mono."""
    kind, scale = ("<i2", 32_768.0) if found.encoding == "s16le" else ("<f4", 1.0)
    data = np.frombuffer(b"".join(found.blocks), kind).reshape(-1, found.channels)
    mono = (data / scale).mean(axis=1).astype(np.float32)
    return np.asarray(soxr.resample(mono, found.rate, 16_000), np.float32)


def fit(one: NDArray[np.float32], other: NDArray[np.float32]) -> tuple[float, float]:
    """Correlation where they fit best, and how much later the first is there, in seconds."""
    size = len(one) + len(other)
    spectrum = np.fft.rfft(one, size) * np.conj(np.fft.rfft(other, size))
    products = np.fft.irfft(spectrum, size)
    best = int(products.argmax())
    shift = best - size if best > size // 2 else best
    return float(products[best] / np.linalg.norm(one) / np.linalg.norm(other)), shift / 16_000


@pytest.mark.parametrize("kind", KINDS)
def test_every_container_gives_its_sound(kind: str) -> None:
    with recording(io.BytesIO(encoded(kind))) as found:
        assert (found.rate, found.channels) == (
            48_000 if "opus" in kind else KINDS[kind][2],
            2 if KINDS[kind][3] == "stereo" else 1,
        )
        heard = samples(found)
    said = (spoken() / 32_768).astype(np.float32)
    assert abs(len(heard) - len(said)) < 3_200
    correlation, shift = fit(heard, said)
    assert correlation > 0.93
    # A bare AAC stream cannot say that its encoder began with a frame of silence.
    assert abs(shift) < (0.07 if kind == "aac" else 0.05)


def test_flac_and_wav_are_exact() -> None:
    with recording(io.BytesIO(encoded("flac"))) as found:
        assert found.encoding == "s16le"
        assert b"".join(found.blocks) == spoken().tobytes()


def test_a_video_gives_its_sound(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(video())
    with recording(str(path)) as found:
        assert abs(found.duration - 4.0) < 0.3
        assert abs(len(samples(found)) / 16_000 - 4.0) < 0.3


def test_a_stream_need_not_be_seekable() -> None:
    class Pipe(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self._data = io.BytesIO(data)

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            return self._data.read(min(size, 1000) if size >= 0 else 1000)

    with recording(Pipe(encoded("webm-opus"))) as found:  # type: ignore[arg-type]
        assert abs(len(samples(found)) / 16_000 - 4.0) < 0.3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no sound at all" * 100,
        b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/passwd\n",
        b"ffconcat version 1.0\nfile '/etc/passwd'\n",
        encoded("ogg-opus")[:60],
    ],
    ids=["nothing", "text", "playlist", "concat", "header"],
)
def test_what_is_no_recording_is_refused(data: bytes) -> None:
    with pytest.raises(ContainerError), recording(io.BytesIO(data)) as found:
        list(found.blocks)


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_damage_is_an_error_or_less_sound(kind: str, data: st.DataObject) -> None:
    """Nothing else comes out of a file with some bytes changed, or cut short."""
    whole = bytearray(encoded(kind, spoken(0.5)))
    for _ in range(data.draw(st.integers(0, 20))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    try:
        with recording(io.BytesIO(bytes(whole[:cut]))) as found:
            for _ in zip(found.blocks, range(1000), strict=False):
                pass
    except ContainerError:
        pass
