"""The service under faults, crowds, nonsense and broken connections, over real sockets.

    python -m tests.benchmarks.bench_robust [faults] [soak] [fuzz] [resume] [loop] [--quick] [--model NAME]

Each section has a daemon of its own in this process, with TLS and transcripts, and replaces its part of
docs/robust.json. The model is `scripted`, which decodes nothing, or a real one. Sections do not need a
quiet machine, but for `loop`, whose clients are processes of their own, and for the slope of `soak`.
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import random
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus, ProtocolError
from websockets.frames import Frame, Opcode

from clients.stream import Captions, connect
from daemon.monitoring.metrics import total
from daemon.recognition.request_queue import Result
from daemon.recognition.scheduler import Engine
from daemon.serve import physical_cores
from model.engine.build import build
from streaming.protocol import Closed, Final, Resume, encode
from tests.benchmarks.bench_service import machine
from tests.support.fakes import ScriptedEngine
from tests.support.faults import (
    FAULTS,
    NEIGHBOURS,
    START,
    Stage,
    inflict,
    stage,
    stopped_in_mid_word,
)
from tests.support.wire import frames, sentence, until

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "robust.json"
ROOT = RESULTS.parent.parent

DEFINITIONS = {
    "neighbours_unchanged": f"of {NEIGHBOURS} sessions during the fault, those whose finals are those of an "
    "undisturbed session",
    "rss_slope_bytes": "per session, by least squares over the resident memory after each ten, the first "
    "fifth left out; descriptors, threads and tasks before and after all of them",
    "crashes": "ends of the daemon, and log entries of a fault of its own",
    "equal": "streams whose finals, after the cuts, are those of an uninterrupted one",
    "longest_block_s": "by which a task that sleeps for a millisecond wakes too late, over the whole run",
}


class Faults(logging.Handler):
    """Counts entries that tell of a fault of our own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.entries: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.entries.append(record.getMessage())


class Forgetful(ScriptedEngine):
    """One that does not keep what it was given, as tests want it to."""

    def step(self) -> list[Result]:
        self.admitted.clear()
        self.cancelled.clear()
        return super().step()


def engine_of(args: argparse.Namespace) -> Callable[[], Engine]:
    """What loads the engine that was asked for."""
    if args.model == "scripted":
        return Forgetful
    return lambda: build(args.model, device="cpu", threads=args.threads or physical_cores())


def on_stage(args: argparse.Namespace, folder: Path) -> AbstractAsyncContextManager[Stage]:
    """The daemon of a section."""
    return stage(
        engine_of(args), folder, stalled_after_seconds=1.0 if args.model == "scripted" else 10.0
    )


async def faults(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Each fault with three sessions beside it, and the stop in mid-utterance."""
    figures: dict[str, Any] = {}
    async with on_stage(args, folder) as running:
        wanted = await running.talk()
        for fault in FAULTS:
            figures[fault] = await inflict(running, fault, wanted)
            print(f"{fault}: {figures[fault]}", flush=True)
        figures["stop_in_mid_utterance"] = await stopped_in_mid_word(running)
    return {"finals_each": len(wanted), **figures}


async def soak(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Sessions that connect, talk and vanish."""
    sessions = 60 if args.quick else 500
    process, memory = psutil.Process(), list[int]()
    async with on_stage(args, folder) as running:
        for _ in range(10):
            await vanish(running)
        await quiet(running)
        before = counts(process)
        for number in range(sessions):
            await vanish(running)
            if number % 10 == 9:
                gc.collect()
                memory.append(process.memory_info().rss)
        await quiet(running)
        after = counts(process)
    late = memory[len(memory) // 5 :]
    slope = float(np.polyfit(np.arange(len(late)) * 10, late, 1)[0])
    return {
        "sessions": sessions,
        "rss_mib": [round(memory[0] / 2**20, 1), round(memory[-1] / 2**20, 1)],
        "rss_slope_bytes": round(slope),
        "before": before,
        "after": after,
    }


async def vanish(running: Stage) -> None:
    """One session that leaves without a word, as soon as the daemon is not too busy for it.

    Transcripts await the finals of those who have left, so that it may well be.
    """
    while True:
        try:
            async with running.client() as client:
                await client.say(START, sentence()[:80_000])
                await client.receive()
                client.socket.transport.abort()
                return
        except InvalidStatus:
            await asyncio.sleep(0.2)


async def quiet(running: Stage) -> None:
    """Until nothing is left of any session, its transcript's files included."""
    daemon = running.daemon
    while daemon.listener.sockets or len(daemon.sessions):  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.05)
    assert daemon.transcripts is not None
    written = asyncio.get_running_loop().create_future()
    daemon.transcripts.submit(
        lambda: written.get_loop().call_soon_threadsafe(written.set_result, None)
    )
    await written


def counts(process: psutil.Process) -> dict[str, int]:
    """What a session must not leave behind."""
    return {
        "descriptors": process.num_fds(),
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
    }


async def fuzz(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Mutated messages, random bytes in frames, random frames, random bytes on the wire."""
    wanted_messages = 3_000 if args.quick else 100_000
    dice, log = random.Random(7), Faults()
    logging.getLogger().addHandler(log)
    sent = connections = 0
    async with on_stage(args, folder) as running:
        undisturbed = await running.talk()
        while sent < wanted_messages:
            connections += 1
            async with running.client() as client:
                with suppress(ConnectionClosed, ConnectionError):
                    for _ in range(dice.randrange(1, 40)):
                        await nonsense(client.socket, dice)
                        sent += 1
                client.socket.transport.abort()
        unchanged = await running.talk() == undisturbed
    logging.getLogger().removeHandler(log)
    return {
        "messages": sent,
        "connections": connections,
        "crashes": len(log.entries),
        "entries": sorted(set(log.entries))[:20],
        "session_afterwards_unchanged": unchanged,
    }


async def nonsense(socket: ClientConnection, dice: random.Random) -> None:
    """One message that is wrong in one of many ways, or nearly right."""
    good = [encode(START), '{"type": "flush"}', '{"type": "stop"}']
    good.append(encode(Resume(session="0" * 8, key="k", finals=0, heard=0)))
    match dice.randrange(6):
        case 0:
            text = list(dice.choice(good))
            for _ in range(dice.randrange(1, 6)):
                text[dice.randrange(len(text))] = chr(dice.randrange(0x20, 0x2FFF))
            await socket.send("".join(text))
        case 1:
            fields = msgspec.json.decode(dice.choice(good))
            fields[dice.choice([*fields, "x"])] = dice.choice(
                [None, -1, 2**70, 1e308, [], {}, "\0" * 99, True]
            )
            await socket.send(json.dumps(fields))
        case 2:
            await socket.send(dice.randbytes(dice.randrange(2_000)))
        case 3:
            await socket.send(dice.choice(good))
        case 4:  # a frame that no library would send
            opcode, fin = dice.choice(list(Opcode)), dice.random() < 0.8
            frame = Frame(opcode, dice.randbytes(dice.randrange(120)), fin=fin)
            with suppress(ProtocolError):
                socket.transport.write(frame.serialize(mask=True))
            await asyncio.sleep(0)
        case _:
            socket.transport.write(dice.randbytes(dice.randrange(1, 60)))
            await asyncio.sleep(0)


async def resume(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One stream cut once, at each of many random places, by the client library's own means."""
    cuts = 5 if args.quick else 50
    dice, equal = random.Random(11), 0
    async with on_stage(args, folder) as running:
        whole, account = await stream(running, cut=None)
        for number in range(cuts):
            cut = dice.randrange(len(running.audio))
            finals, closed = await stream(running, cut)
            equal += finals == whole and closed == account
            print(f"resume {number + 1}/{cuts}: cut at {cut}, equal so far {equal}", flush=True)
        resumed = int(total(running.daemon.metrics.resumed))
    return {"cuts": cuts, "resumed": resumed, "equal": equal, "finals_each": len(whole)}


async def stream(running: Stage, cut: int | None) -> tuple[list[tuple[float, float, str]], Closed]:
    """The whole recording through the library, its connection broken behind byte `cut`."""
    finals: list[tuple[float, float, str]] = []
    account: list[Closed] = []

    async def speak(captions: Captions) -> None:
        at = 0
        for frame in frames(running.audio, 16_001):
            await captions.send(frame)
            if cut is not None and at <= cut < at + len(frame):
                running.daemon.listener.drop(set(running.daemon.listener.sockets))
            at += len(frame)
            await asyncio.sleep(0.002)
        await captions.stop()

    async with connect(running.daemon.address, START) as captions:
        speaking = asyncio.create_task(speak(captions))
        async for message in captions:
            if isinstance(message, Final):
                finals.append((message.start, message.end, message.text))
            if isinstance(message, Closed):
                account.append(message)
        await speaking
    return finals, account[0]


async def loop(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """How late the event loop is at most while four clients stream at the pace of speech."""
    late: list[float] = []

    async def watch() -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            await asyncio.sleep(0.001)
            late.append(clock() - began - 0.001)

    async with on_stage(args, folder) as running:
        url = running.daemon.address
        command = [
            sys.executable,
            "-m",
            "daemon",
            "file",
            "clients/sample.flac",
            "--pace",
            "realtime",
        ]
        clients = [
            await asyncio.create_subprocess_exec(*command, "--url", url, "--partials", cwd=ROOT)
            for _ in range(1 if args.quick else 4)
        ]
        await until(lambda: len(running.daemon.sessions) == len(clients))
        watching = asyncio.create_task(watch())
        statuses = [await client.wait() for client in clients]
        watching.cancel()
    assert not any(statuses), statuses
    return {
        "sessions": len(clients),
        "wakes": len(late),
        "longest_block_s": round(max(late), 4),
        "p99_s": round(float(np.percentile(late, 99)), 4),
        "blocks_above_50_ms": sum(delay > 0.05 for delay in late),
    }


SECTIONS: dict[str, Callable[[argparse.Namespace, Path], Awaitable[dict[str, Any]]]] = {
    "faults": faults,
    "soak": soak,
    "fuzz": fuzz,
    "resume": resume,
    "loop": loop,
}


async def run(args: argparse.Namespace) -> None:
    """Each section asked for, written as soon as it is done."""
    for name in args.sections or SECTIONS:
        with tempfile.TemporaryDirectory() as folder:
            # The library's clients trust what this variable names.
            os.environ["SSL_CERT_FILE"] = str(Path(folder) / "root.pem")
            figures = await SECTIONS[name](args, Path(folder))
        print(f"{name}: {figures}", flush=True)
        if args.quick:
            continue
        known = json.loads(args.output.read_text()) if args.output.exists() else {}
        known["definitions"] = DEFINITIONS
        known[name] = {"machine": machine(), "model": args.model, **figures}
        args.output.write_text(json.dumps(known, indent=1) + "\n")


def main() -> None:
    """Read the options. A quick run prints its figures and keeps none."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_robust")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument(
        "--model", default="scripted", help="scripted, or as `captiond serve` takes it"
    )
    parser.add_argument("--threads", type=int, default=0, help="of the model (default: all cores)")
    parser.add_argument("--quick", action="store_true", help="see that it works; write nothing")
    parser.add_argument("--output", type=Path, default=RESULTS, help="default: %(default)s")
    args = parser.parse_args()
    unknown = sorted(set(args.sections) - SECTIONS.keys())
    if unknown:
        parser.error(f"no section {', '.join(unknown)}: choose from {', '.join(SECTIONS)}")
    asyncio.run(run(args))


if __name__ == "__main__":
    main()
