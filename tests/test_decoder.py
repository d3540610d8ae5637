"""Decoding in a process of its own, with the process; daemon/files/decoder_process.py is tested by it."""

import asyncio
import os
import tempfile
from typing import IO

import pytest

from daemon.files.decoder import DecodingError, decoded
from tests.support.recordings import encoded, spoken


def on_disk(data: bytes) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the test closes it
    file.write(data)
    file.seek(0)
    return file


async def everything(data: bytes) -> bytes:
    with on_disk(data) as file:
        async with decoded(file) as sound:
            return b"".join([block async for block in sound.blocks])


def children() -> set[str]:
    """Processes that this one has begun, and that have not been waited for."""
    folder = f"/proc/self/task/{os.getpid()}/children"
    with open(folder) as file:  # noqa: PTH123
        return set(file.read().split())


async def test_a_file_gives_its_samples() -> None:
    assert await everything(encoded("flac")) == spoken().tobytes()


async def test_the_format_is_told() -> None:
    with on_disk(encoded("webm-opus")) as file:
        async with decoded(file) as sound:
            assert (sound.rate, sound.channels, sound.encoding) == (48_000, 2, "f32le")


async def test_what_is_no_recording_is_named() -> None:
    with pytest.raises(DecodingError, match="not audio or video"):
        await everything(b"no sound at all" * 1000)


async def test_the_process_ends_with_its_reader() -> None:
    """Also where most of a long file has not been read."""
    before = children()
    with on_disk(encoded("flac", spoken(30.0).repeat(20))) as file:
        async with decoded(file) as sound:
            assert children() > before
            await anext(sound.blocks)
        assert children() <= before


async def test_a_process_that_is_killed_is_an_error() -> None:
    """As a crash of libav would be."""
    before = children()
    with on_disk(encoded("flac", spoken(30.0).repeat(20))) as file:
        async with decoded(file) as sound:
            await anext(sound.blocks)
            (process,) = children() - before
            os.kill(int(process), 11)
            with pytest.raises(DecodingError, match="the decoder failed"):
                async for _ in sound.blocks:
                    pass


async def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.files.decoder.SILENCE", 0.05)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file, pytest.raises(DecodingError, match="takes too long"):
        async with decoded(file):
            pass
    os.close(writing)


async def test_many_run_side_by_side() -> None:
    file = encoded("mp3")
    lengths = {len(one) for one in await asyncio.gather(*(everything(file) for _ in range(4)))}
    assert len(lengths) == 1
