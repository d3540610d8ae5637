"""Decoding in a process of its own: what a stranger's container does to libav happens there.

The process gets its input from a file or bit by bit, and is stopped where nobody wants the rest.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import IO

from streaming.protocol import Encoding

SILENCE = 30.0  # seconds that a decoder may take over nothing
BLOCK = 2**16  # bytes
MOST_WORDS = 500  # bytes of what it says about a failure


class DecodingError(Exception):
    """The file cannot be decoded; the text is for its owner."""


@dataclass(frozen=True, slots=True)
class Sound:
    """Interleaved samples, and what they are. duration: seconds that the container claims, or 0."""

    encoding: Encoding
    rate: int
    channels: int
    duration: float
    blocks: AsyncIterator[bytes]


@asynccontextmanager
async def decoded(source: IO[bytes]) -> AsyncIterator[Sound]:
    """The sound in `source`, a file on disk. Raises DecodingError, later from the blocks, too."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "daemon.files.decoder_process",
        stdin=source,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        limit=BLOCK,
    )
    try:
        yield await _sound(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # what nobody has read would keep the pipes open


async def _sound(process: asyncio.subprocess.Process) -> Sound:
    assert process.stdout is not None
    line = await _in_time(process.stdout.readline())
    if not line.endswith(b"\n"):
        raise DecodingError(await _failure(process))
    about = json.loads(line)
    return Sound(**about, blocks=_blocks(process))


async def _blocks(process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    while block := await _in_time(process.stdout.read(BLOCK)):
        yield block
    if await process.wait():
        raise DecodingError(await _failure(process))


async def _in_time(reading: Awaitable[bytes]) -> bytes:
    try:
        async with asyncio.timeout(SILENCE):
            return await reading
    except TimeoutError:
        raise DecodingError("decoding the file takes too long") from None


async def _failure(process: asyncio.subprocess.Process) -> str:
    """What went wrong, in a line."""
    assert process.stderr is not None
    said = (await process.stderr.read(MOST_WORDS)).decode(errors="replace").strip()
    status = await process.wait()
    if status == 1 and said and "Traceback" not in said:
        return said
    if status == -signal.SIGXCPU:
        return "decoding the file takes too long"
    return "the decoder failed at this file"
