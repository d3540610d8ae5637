"""`captiond demo`: a daemon of its own captions the bundled sample, at the pace of speech.

It imports no part of the daemon: it starts it as a program, connects to its socket and stops it by a
signal, as any user would. Audio, session and screen are those of `captiond file`.
"""

import argparse
import asyncio
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import BinaryIO, assert_never

from clients.caption_formats import Screen
from clients.captioning import Interrupt, caption, exit_status
from clients.file import Audio, SourceError, open_file, speak
from clients.stream import Captions, StreamError
from streaming.protocol import (
    SAMPLE_RATE,
    Closed,
    Configured,
    Error,
    Final,
    Flushed,
    Heard,
    Lag,
    Partial,
    Ready,
    ServerMessage,
    Speech,
    Start,
)
from streaming.subtitles import printable

NAME = "captiond demo"

HOME = Path(__file__).resolve().parent.parent  # the folder of the import packages
SAMPLE = Path(__file__).with_name("sample.flac")  # its transcript is beside it, in sample.txt
# -P: no module of the working directory may stand in for the daemon.
DAEMON = (sys.executable, "-P", "-m", "daemon", "serve")
HOST = "127.0.0.1"
LEAST_OVERLAP = 0.8

READY = re.compile(rb"ready on (ws://\S+) ")  # in the daemon's log
READY_S = 120.0  # until the model must be loaded
POLL_S = 0.2
STOP_S = 45.0  # the daemon grants pending finals 30 s, by default
LOG_BYTES = 4000  # of the end of the daemon's log
WHOLE_LOG = 1 << 20  # bytes: far more than a daemon logs at start-up


class DemoError(Exception):
    """The demo failed; the text says why."""


class Transcript:
    """Partials and finals with their times, and the figures of the summary. A subtitles.Format.

    partials: whether each gets a line; a terminal shows them in its live line.
    began: when the first sample was sent, on `clock`, in seconds.
    """

    header = ""

    def __init__(self, clock: Callable[[], float], *, partials: bool) -> None:
        self.began = 0.0
        self._clock = clock
        self._partials = partials
        self._texts: list[str] = []
        self._delays: list[float] = []  # seconds from the end of an utterance to its final
        self._seconds = 0.0  # of audio

    @property
    def text(self) -> str:
        """The text of all finals."""
        return " ".join(self._texts)

    @property
    def summary(self) -> str:
        """One sentence; there must have been a final."""
        delay = statistics.median(self._delays)
        return (
            f"{len(self._texts)} utterances in {self._seconds:.1f} s of audio; "
            f"finals came {delay:.1f} s after the end of speech (median)"
        )

    def render(self, message: ServerMessage) -> str:
        """A line for each final that has words, and for each partial if wanted."""
        match message:
            case Partial():
                if self._partials:
                    return _line(message, " …")
            case Final():
                if message.text.strip():
                    self._texts.append(message.text)
                    self._delays.append(self._clock() - self.began - message.end)
                    return _line(message, "  ")
            case Closed():
                self._seconds = message.received / SAMPLE_RATE
            case Ready() | Speech() | Configured() | Flushed() | Lag() | Heard() | Error():
                pass
            case _:
                assert_never(message)
        return ""


def _line(message: Partial | Final, mark: str) -> str:
    return f"{message.start:5.1f} - {message.end:4.1f} s{mark} {printable(message.text).strip()}\n"


def overlap(reference: str, text: str) -> float:
    """The share of the reference's words that `text` has in the same order, 0 to 1.

    Case and punctuation do not count. The reference has at least one word.
    """
    wanted, got = (re.findall(r"\w+", one.lower()) for one in (reference, text))
    blocks = SequenceMatcher(None, wanted, got, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / len(wanted)


@dataclass(frozen=True, slots=True)
class Running:
    """A running daemon: its URL, and its process id."""

    url: str
    pid: int


@asynccontextmanager
async def running_daemon(
    program: Sequence[str], model: str, patience_s: float, interrupt: Interrupt
) -> AsyncIterator[Running | None]:
    """A daemon on a port that it chose itself, once it is ready; stopped on leaving.

    None if the user interrupts before it is ready. program: its command line, to which address,
    model and log level are added. patience_s: until it must be ready. Raises DemoError, with the end
    of its log, if it does not become ready, loses a session or stops with a wrong status. A second
    interrupt kills it, and ends the program.
    """
    options = ("--host", HOST, "--port", "0", "--model", model, "--log-level", "info")
    path = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *program,
            *options,
            stdin=DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": path},
            process_group=0,  # Ctrl-C is for the client; the daemon still has captions to deliver
        )
        failure: str | None = None
        interrupt.last_act = partial(_kill, process)
        try:
            url = await _until_ready(process, log, patience_s, interrupt)
            yield None if url is None else Running(url, process.pid)
        except (DemoError, StreamError) as error:
            failure = str(error)
        finally:
            fault = await _stop(process)
            interrupt.last_act = None
        if failure or fault:
            reasons = "; ".join(filter(None, [failure, fault]))
            raise DemoError(f"{reasons}. The daemon's log ends:\n{_tail(log)}")


async def _until_ready(
    process: Process, log: BinaryIO, patience_s: float, interrupt: Interrupt
) -> str | None:
    """The daemon's URL, once its log says "ready"; None if the user interrupts.

    Raises DemoError.
    """
    ended = asyncio.ensure_future(process.wait())
    asked = asyncio.ensure_future(interrupt.requested.wait())
    try:
        async with asyncio.timeout(patience_s):
            while not asked.done():
                # By pread: the daemon writes at the position of the open file.
                said = READY.search(os.pread(log.fileno(), WHOLE_LOG, 0))
                if said is not None:
                    return said[1].decode()
                if ended.done():
                    raise DemoError("the daemon ended before it was ready")
                await asyncio.wait(
                    [ended, asked], timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED
                )
            return None
    except TimeoutError:
        raise DemoError(f"the daemon was not ready within {patience_s:g} s") from None
    finally:
        ended.cancel()
        asked.cancel()


async def _stop(process: Process) -> str | None:
    """Stop the daemon: by SIGTERM, then by SIGKILL. The sentence of what went wrong, or None."""
    well = {0}
    if process.returncode is None:
        well.add(-signal.SIGTERM)  # it came before the daemon's handler was set
        with suppress(ProcessLookupError):
            # Not by Popen.terminate: it polls, and may take the exit status before the loop does.
            os.kill(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_S):
            status = await process.wait()
    except TimeoutError:
        _kill(process)
        await process.wait()
        return f"the daemon did not stop within {STOP_S:g} s of SIGTERM and was killed"
    return None if status in well else f"the daemon ended with status {status}"


def _kill(process: Process) -> None:
    """Kill the process, with every process that it started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _tail(log: BinaryIO) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(size - LOG_BYTES, 0))
    return log.read().decode(errors="replace").strip() or "(nothing)"


async def play(url: str, audio: Audio, screen: Screen, log: Transcript, stop: Interrupt) -> None:
    """Stream the sample at the pace of speech. Raises StreamError and SourceError."""

    async def feed(captions: Captions) -> None:
        log.began = time.monotonic()
        await speak(captions, audio, realtime=True)

    start = Start(encoding=audio.encoding, rate=audio.rate, channels=audio.channels, language="en")
    async with aclosing(audio.blocks):
        await caption(url, start, feed, screen, stop)


async def _demo(model: str, program: Sequence[str], sample: Path, patience_s: float) -> int:
    transcript = Transcript(time.monotonic, partials=not sys.stderr.isatty())
    with closing(Screen(NAME, transcript, sys.stdout, sys.stderr)) as screen, Interrupt() as stop:
        try:
            wanted = sample.with_suffix(".txt").read_text(encoding="utf-8")
            with open_file(str(sample)) as audio:
                screen.tell(f"starting a daemon with the model {model}")
                async with running_daemon(program, model, patience_s, stop) as daemon:
                    if daemon is not None:
                        await play(daemon.url, audio, screen, transcript, stop)
            if not stop.status:
                _judge(transcript, wanted)
        except (DemoError, SourceError) as error:
            screen.tell(str(error))
            return 1
        return stop.status


def _judge(transcript: Transcript, wanted: str) -> None:
    """Write the summary. Raises DemoError if too little of `wanted` was recognised."""
    if not transcript.text:
        raise DemoError("no words came back")
    sys.stdout.write(f"{transcript.summary}\n")
    share = overlap(wanted, transcript.text)
    if share < LEAST_OVERLAP:
        raise DemoError(
            f"only {share:.0%} of the sample's words were understood, "
            f"{LEAST_OVERLAP:.0%} are expected"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    for flag, default in (("--model", "base"), ("--drafter", "auto")):
        parser.add_argument(
            flag, default=default, help=f"as in `captiond serve` (default: {default})"
        )


def run(
    args: argparse.Namespace,
    *,
    program: Sequence[str] = DAEMON,
    sample: Path = SAMPLE,
    patience_s: float = READY_S,
) -> int:
    """Caption `sample` with a daemon made by `program`.

    0: the finals have at least LEAST_OVERLAP of the words of its transcript, and the daemon stopped
    well; 1: they have not, or anything failed; 130 after Ctrl-C, 143 after SIGTERM.
    """
    command = (*program, "--drafter", args.drafter)
    return exit_status(lambda: asyncio.run(_demo(args.model, command, sample, patience_s)))
