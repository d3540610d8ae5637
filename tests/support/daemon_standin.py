"""A scripted daemon as a program: real sockets and signals, no engine.

    python -P -m tests.support.daemon_standin FATE --drafter auto --host 127.0.0.1 --port 0
        --model TEXT --log-level info

Where the demo names a model, TEXT is what this daemon hears: finals, with / between them. FATE says
what becomes of it; see FATES.
"""

import argparse
import asyncio
import functools
import os
import signal
import sys

from streaming.protocol import Speech, Stop
from tests.support.standin import Peer, closed, final, partial, standin

FATES = {
    "well": "gets ready, serves, and stops with status 0",
    "dead": "ends with status 3 before it is ready",
    "importing-interrupted": "interrupts its parent, as Ctrl-C would, before it knows any signal",
    "loading": "is never ready",
    "loading-interrupted": "interrupts its parent before it is ready",
    "interrupted": "interrupts its parent at the first sound",
    "crash": "ends with status 5 at the first sound",
    "bad-end": "serves, and stops with status 7",
    "deaf": "serves, and does not stop",
    "deaf-interrupted": "interrupts its parent at the first sound, and does not stop",
}


async def serve(peer: Peer, fate: str, lines: list[str]) -> None:
    """One session."""
    await peer.open()
    await peer.until(bytes)
    if fate == "crash":
        sys.stderr.write("out of memory\n")
        sys.stderr.flush()
        os._exit(5)
    if fate in {"interrupted", "deaf-interrupted"}:
        os.kill(os.getppid(), signal.SIGINT)
    await peer.until(Stop)
    for number, line in enumerate(lines):
        await peer.send(
            Speech(event="start", utterance=number, at=0.0),
            partial("Some", utterance=number),
            final(line, utterance=number, end=0.25),
        )
    await peer.send(closed(len(peer.audio) // 2))


async def run(fate: str, text: str) -> int:
    """Serve until SIGTERM. The exit status."""
    stop = asyncio.Event()
    if not fate.startswith("deaf"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    async with standin(functools.partial(serve, fate=fate, lines=text.split("/"))) as server:
        if fate == "loading-interrupted":
            os.kill(os.getppid(), signal.SIGINT)
        if not fate.startswith("loading"):
            print(f"ready on {server.url} (scripted)", file=sys.stderr, flush=True)
        await stop.wait()
    return 7 if fate == "bad-end" else 0


def main() -> int:
    """Parse what the demo passes, and live the fate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("fate", choices=FATES)
    parser.add_argument("--host", choices=["127.0.0.1"], required=True)
    parser.add_argument("--port", choices=["0"], required=True)
    parser.add_argument("--drafter", choices=["auto", "none"], required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--log-level", choices=["info"], required=True)
    args = parser.parse_args()
    if args.fate == "dead":
        sys.stderr.write("no such model\n")
        return 3
    if args.fate == "importing-interrupted":
        os.kill(os.getppid(), signal.SIGINT)
        signal.pause()
    return asyncio.run(run(args.fate, args.model))


if __name__ == "__main__":
    sys.exit(main())
