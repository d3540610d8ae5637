"""What a long recording over HTTP costs live sessions beside it.

    python -m tests.benchmarks.bench_files [--rounds N] [--seconds S] [--output FILE]

Four live sessions at the pace of speech, in turn alone and beside an hour of speech at /v1/audio/transcriptions,
each time with a daemon of its own. Where the machine is not quiet, more rounds even out what else runs on it.
Writes docs/files.json.
"""

import argparse
import asyncio
import io
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from clients.demo import Running
from streaming.protocol import SAMPLE_RATE
from tests.benchmarks.bench_load import clips, final_delays
from tests.benchmarks.bench_service import CHAPTER, daemon, machine, options, spread
from tests.benchmarks.bench_stream import stream
from tests.support.audio import recordings

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "files.json"
SESSIONS = 4
FILE_SECONDS = 3_600
BLOCK = 2**16  # bytes
BOUNDARY = "a-boundary"

DEFINITIONS = {
    "after_endpoint": "arrival of a final minus arrival of its utterance's speech end message, all sessions and rounds",
    "file_seconds": "of the hour that were recognised meanwhile, a round",
}


def hour() -> bytes:
    """An hour of a chapter, over and over, as FLAC."""
    file = io.BytesIO()
    audio = np.concatenate([one.audio() for one in recordings(under=CHAPTER)])
    soundfile.write(file, np.resize(audio, FILE_SECONDS * SAMPLE_RATE), SAMPLE_RATE, format="FLAC")
    return file.getvalue()


@asynccontextmanager
async def transcribing(running: Running, data: bytes) -> AsyncIterator[None]:
    """While the daemon has the recording; behind that the client goes."""
    host, _, port = running.url.removeprefix("ws://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port.strip("/")))
    fields = [("model", "whisper-1"), ("language", "en"), ("stream", "true")]
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields
    ]
    file = 'Content-Disposition: form-data; name="file"; filename="hour.flac"\r\n\r\n'
    head = "".join([*parts, f"--{BOUNDARY}\r\n", file]).encode()
    end = f"\r\n--{BOUNDARY}--\r\n".encode()
    length = len(head) + len(data) + len(end)
    writer.write(
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n".encode()
    )
    for piece in (head, *(data[at : at + BLOCK] for at in range(0, len(data), BLOCK)), end):
        writer.write(piece)
        await writer.drain()
    first = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in first.splitlines()[0], first
    reading = asyncio.create_task(_read_all(reader))
    try:
        yield
    finally:
        reading.cancel()
        writer.close()
        with suppress(asyncio.CancelledError):
            await reading


async def _read_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(BLOCK):
        pass


def recognised(running: Running) -> float:
    """Seconds of recordings that have their final."""
    url = running.url.replace("ws://", "http://").rstrip("/") + "/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:  # our own daemon
        lines = answer.read().decode().splitlines()
    (line,) = (one for one in lines if one.startswith("captiond_file_audio_seconds_total "))
    return float(line.split()[1])


async def live(running: Running, seconds: float) -> list[float]:
    """The delays of the finals of all sessions."""
    takes = await asyncio.gather(
        *(
            stream(running.url, audio, realtime=True, partials=True)
            for audio in clips(SESSIONS, seconds)
        )
    )
    return [delay for take in takes for delay in final_delays(take)]


async def run(args: argparse.Namespace) -> None:
    """Alone and beside, in turn."""
    alone: list[float] = []
    beside: list[float] = []
    reached: list[float] = []
    data = hour()
    for number in range(args.rounds):
        async with daemon(args.model) as running:
            alone += await live(running, args.seconds)
        async with daemon(args.model) as running, transcribing(running, data):
            before = recognised(running)
            beside += await live(running, args.seconds)
            reached.append(round(recognised(running) - before, 1))
        print(number, json.dumps([spread(alone), spread(beside), reached]), flush=True)
    result: dict[str, Any] = {
        "definitions": DEFINITIONS,
        "machine": machine(),
        "model": args.model,
        "sessions": SESSIONS,
        "seconds": args.seconds,
        "alone": spread(alone),
        "beside": spread(beside),
        "file_seconds": reached,
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_files")
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each session (default: 60)")
    asyncio.run(run(options(parser, {}, RESULTS, [])))


if __name__ == "__main__":
    main()
