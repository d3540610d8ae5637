"""What sharing one port with HTTP costs websockets: captiond's listener beside the bare websocket library.

    python -m tests.benchmarks.bench_port [--rounds N] [--seconds S] [--output FILE]

Echoes of 100 ms of audio, from 20 connections at ten a second and from 500 at one, in turn through each; then 100
connections of which a tenth never reads. Writes docs/port.json.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request

from daemon.config import Config
from daemon.net.exchange import Exchange
from daemon.net.listener import QUEUED_FRAMES, Listener
from tests.benchmarks.bench_service import machine, options

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "port.json"
FRAME = bytes(3_200)  # 100 ms of 16 kHz mono int16
LOADS = {"20 x 10": (20, 0.1), "500 x 1": (500, 1.0)}  # connections, seconds between frames
AT_ONCE = 50  # handshakes
WAYS = ("bare", "one port")

DEFINITIONS = {
    "echo_ms": "from before a frame is sent until it is back: median, 90th and 99th percentile, and the longest",
    "cpu_us": "of the server for each frame, user and system",
    "slow": "of 100 connections one in ten never reads: frames that the others got back, of those that they sent",
}


async def echo(socket: ServerConnection) -> None:
    with suppress(ConnectionClosed):
        async for frame in socket:
            await socket.send(frame)


async def nothing(_exchange: Exchange) -> None:
    """There is no HTTP to answer here."""


async def let_in(_socket: ServerConnection, _request: Request) -> None:
    """Whoever asks becomes a websocket."""


async def server(way: str) -> None:
    """Print a port, and echo until killed."""
    if way == "bare":
        bare = await serve(echo, "127.0.0.1", 0, compression=None, max_queue=QUEUED_FRAMES)
        port = next(iter(bare.sockets)).getsockname()[1]
    else:
        listener = Listener(echo, let_in, nothing, Config(port=0, max_sessions=1_000), None)
        await listener.open(())
        port = listener.port
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


async def opened(port: int, count: int) -> list[ClientConnection]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> ClientConnection:
        async with gate:
            return await connect(f"ws://127.0.0.1:{port}/", compression=None, open_timeout=60)

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def echoes(
    socket: ClientConnection, every: float, seconds: float, first: float
) -> list[float]:
    """Round trips, one after another, at a steady pace."""
    found = []
    end = time.monotonic() + seconds
    due = time.monotonic() + first
    while due < end:
        await asyncio.sleep(max(due - time.monotonic(), 0))
        began = time.perf_counter()
        await socket.send(FRAME)
        await socket.recv()
        found.append(time.perf_counter() - began)
        due += every
    return found


async def burst(socket: ClientConnection, *, reads: bool) -> int:
    """200 frames; how many come back. Who never reads is stopped by the server before long."""
    count = 200
    if not reads:
        socket.transport.pause_reading()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                for _ in range(count * 100):
                    await socket.send(FRAME)
        return 0
    for _ in range(count):
        await socket.send(FRAME)
        await socket.recv()
    return count


def milliseconds(trips: list[float]) -> list[float]:
    """Median, 90th and 99th percentile, and the longest."""
    found: list[float] = (1e3 * np.percentile(trips, [50, 90, 99, 100])).round(2).tolist()
    return found


async def measured(way: str, seconds: float) -> dict[str, Any]:
    """One server's figures."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_port", "--serve", way]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - it starts at once
    assert process.stdout is not None
    port = int(await asyncio.to_thread(process.stdout.readline))
    found: dict[str, Any] = {}
    try:
        about = psutil.Process(process.pid)
        for name, (count, every) in LOADS.items():
            sockets = await opened(port, count)
            before = sum(about.cpu_times()[:2])
            took = await asyncio.gather(
                *(echoes(one, every, seconds, every * n / count) for n, one in enumerate(sockets))
            )
            trips = [trip for one in took for trip in one]
            used = sum(about.cpu_times()[:2]) - before
            found[name] = {
                "echo_ms": milliseconds(trips),
                "cpu_us": round(1e6 * used / len(trips), 1),
            }
            await asyncio.gather(*(one.close() for one in sockets))
        sockets = await opened(port, 100)
        back = await asyncio.gather(
            *(burst(one, reads=n % 10 > 0) for n, one in enumerate(sockets))
        )
        found["slow"] = f"{sum(back)} of {90 * 200}"
        for one in sockets:
            one.transport.abort()
    finally:
        process.kill()
        process.wait()
    return found


async def run(args: argparse.Namespace) -> None:
    """Each way in turn, and the other one first in the next round."""
    rounds: list[dict[str, Any]] = []
    for number in range(args.rounds):
        order = WAYS[:: -1 if number % 2 else 1]
        rounds.append({way: await measured(way, args.seconds) for way in order})
        print(json.dumps(rounds[-1], indent=1), flush=True)
    result = {"definitions": DEFINITIONS, "machine": machine(), "rounds": rounds}
    args.output.write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_port")
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load (default: 20)")
    parser.add_argument("--serve", choices=WAYS, help=argparse.SUPPRESS)
    args = options(parser, {}, RESULTS, [])
    asyncio.run(server(args.serve) if args.serve else run(args))


if __name__ == "__main__":
    main()
