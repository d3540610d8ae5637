"""`captiond file`: captions of recordings, or of raw audio on standard input.

Reads audio and runs sessions one after another. What the messages look like is subtitles.py's
business, the wire is stream.py's; what every verb that captions needs (options, interrupts, running
one session) stands here and serves mic.py too.
"""

import argparse
import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

import soundfile

from clients.stream import DEFAULT_URL, Captions, ConnectError, StreamError, connect
from clients.subtitles import FORMATS, Screen
from streaming.protocol import SAMPLE_RATE, Encoding, ProtocolError, Start, Task

SUMMARY = "caption audio files, or raw audio from standard input"

NAME = "captiond file"
SAMPLE_BYTES: dict[Encoding, int] = {"s16le": 2, "f32le": 4, "mulaw": 1, "alaw": 1}
EXACT_IN_INT16 = ("PCM_16", "PCM_U8", "PCM_S8", "ULAW", "ALAW")  # libsndfile's names
BLOCK_S = 0.1
USAGE = 2  # exit status of argparse, too


class SourceError(Exception):
    """Audio that cannot be read; the text names it and says why."""


class Interrupt:
    """While entered, the first SIGINT or SIGTERM sets `requested`; a second one ends the program.

    status: the exit status that tells the signal, 128 + its number; 0 if there was none.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.status = 0

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ask, number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def _ask(self, number: signal.Signals) -> None:
        self.status = 128 + number
        self.requested.set()
        self._release()  # from here on the signals do what they always do

    def _release(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)


async def caption(
    url: str,
    start: Start,
    feed: Callable[[Captions], Awaitable[None]],
    screen: Screen,
    interrupt: Interrupt,
) -> None:
    """One session: `feed` sends the audio; when it ends or the user interrupts, pending finals follow.

    Raises StreamError, ProtocolError for a bad `start`, and what `feed` raised, in each case only
    after every caption that could be had is on the screen.
    """
    async with connect(url, start) as captions:
        screen.show(captions.ready)
        sender = asyncio.create_task(_send(captions, feed, interrupt))
        try:
            async for message in captions:
                screen.show(message)
        finally:
            sender.cancel()
            (failure,) = await asyncio.gather(sender, return_exceptions=True)
        if isinstance(failure, Exception):
            raise failure


async def _send(
    captions: Captions, feed: Callable[[Captions], Awaitable[None]], interrupt: Interrupt
) -> None:
    """Feed until the audio ends or the user interrupts, then stop the stream in any case."""
    feeding = asyncio.ensure_future(feed(captions))
    asked = asyncio.ensure_future(interrupt.requested.wait())
    try:
        await asyncio.wait([feeding, asked], return_when=asyncio.FIRST_COMPLETED)
    finally:
        feeding.cancel()
        asked.cancel()
        failure, _ = await asyncio.gather(feeding, asked, return_exceptions=True)
    await captions.stop()
    if isinstance(failure, Exception):
        raise failure


@dataclass(frozen=True, slots=True)
class Audio:
    """Audio to be read once: its format and its `blocks`, each of about a tenth of a second."""

    name: str
    encoding: Encoding
    rate: int
    channels: int
    blocks: AsyncGenerator[bytes, None]

    @property
    def bytes_per_second(self) -> int:
        """At the given format."""
        return self.rate * self.channels * SAMPLE_BYTES[self.encoding]


@contextmanager
def open_file(name: str) -> Iterator[Audio]:
    """Any file libsndfile reads, never loaded whole. Raises SourceError."""
    path = Path(name)
    if not path.exists():
        raise SourceError(f"{name}: no such file")
    if path.suffix.lower() == ".raw":
        raise SourceError(f"{name}: raw audio has no header; pipe it in, with - and --rate")
    try:
        file = soundfile.SoundFile(path)
    except (soundfile.LibsndfileError, OSError) as error:
        raise SourceError(f"{name}: not audio that can be read ({error})") from error
    with file:
        if not file.frames:
            raise SourceError(f"{name}: holds no audio")
        yield _decoded(name, file)


def _decoded(name: str, file: soundfile.SoundFile) -> Audio:
    exact = file.subtype in EXACT_IN_INT16
    read_as, wire = ("int16", "<i2") if exact else ("float32", "<f4")
    frames = max(round(file.samplerate * BLOCK_S), 1)

    async def blocks() -> AsyncGenerator[bytes, None]:
        # A tenth of a second is decoded in well under a millisecond: no thread is worth its races.
        try:
            while (block := file.read(frames, dtype=read_as, always_2d=True)).size:
                yield block.astype(wire, copy=False).tobytes()
        except soundfile.LibsndfileError as error:
            raise SourceError(f"{name}: damaged at {file.tell()} samples ({error})") from error

    encoding: Encoding = "s16le" if exact else "f32le"
    return Audio(name, encoding, file.samplerate, file.channels, blocks())


def raw_audio(encoding: Encoding, rate: int, channels: int) -> Audio:
    """Samples without a header on standard input. Raises SourceError where that is a terminal."""
    if sys.stdin.isatty():
        raise SourceError("-: expects raw audio on standard input, which is a terminal")
    size = max(round(rate * channels * SAMPLE_BYTES[encoding] * BLOCK_S), 1)
    return Audio("-", encoding, rate, channels, _read(sys.stdin.fileno(), size))


async def _read(descriptor: int, size: int) -> AsyncGenerator[bytes, None]:
    """Blocks of at most `size` bytes, as soon as they come. Raises SourceError."""
    mode = os.fstat(descriptor).st_mode
    try:
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            async with aclosing(_read_pipe(descriptor, size)) as blocks:
                async for block in blocks:
                    yield block
        else:  # a file or a device such as /dev/null never makes us wait
            while block := os.read(descriptor, size):
                yield block
    except OSError as error:
        raise SourceError(f"-: standard input cannot be read ({error})") from error


async def _read_pipe(descriptor: int, size: int) -> AsyncGenerator[bytes, None]:
    reader = asyncio.StreamReader(limit=size)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(descriptor), "rb")
    )
    try:
        while block := await reader.read(size):
            yield block
    finally:
        transport.close()
        os.set_blocking(descriptor, True)  # as we found it: others may share the pipe


async def _caption_audio(
    audio: Audio, args: argparse.Namespace, screen: Screen, interrupt: Interrupt
) -> None:
    """One file, at disk speed or at the pace of the sound. Raises SourceError if it is empty."""

    async def feed(captions: Captions) -> None:
        clock = asyncio.get_running_loop().time
        began, sent = clock(), 0
        async for block in audio.blocks:
            if args.pace == "realtime":
                await asyncio.sleep(began + sent / audio.bytes_per_second - clock())
            await captions.send(block)
            sent += len(block)
        if not sent:
            raise SourceError(f"{audio.name}: holds no audio")

    start = start_of(args, screen, audio.encoding, audio.rate, audio.channels)
    async with aclosing(audio.blocks):
        await caption(args.url, start, feed, screen, interrupt)


async def _caption_all(args: argparse.Namespace, screen: Screen) -> int:
    """Every file in turn; what fails is told and the next one follows. The exit status."""
    raw: tuple[Encoding, int, int] = (
        args.encoding or "s16le",
        args.rate or SAMPLE_RATE,
        args.channels or 1,
    )
    failed = False
    with Interrupt() as interrupt:
        for name in args.audio:
            try:
                with nullcontext(raw_audio(*raw)) if name == "-" else open_file(name) as audio:
                    await _caption_audio(audio, args, screen, interrupt)
            except ConnectError as error:
                screen.tell(str(error))
                return 1  # no file would fare better
            except (SourceError, StreamError, ProtocolError) as error:
                screen.tell(str(error))
                failed = True
            if interrupt.status:
                return interrupt.status
    return 1 if failed or screen.troubles else 0


def add_caption_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every verb that captions."""
    add = parser.add_argument
    url = os.environ.get("CAPTIOND_URL", DEFAULT_URL)
    add("--url", default=url, help="the daemon (environment: CAPTIOND_URL; now %(default)s)")
    add("--format", choices=list(FORMATS), default="text", help="of the output (default: text)")
    add("--output", metavar="FILE", help="where to write (default: standard output)")
    add(
        "--partials",
        action=argparse.BooleanOptionalAction,
        help="want hypotheses while speech goes on (default: on a terminal and for json)",
    )
    add(
        "--language",
        action="append",
        default=[],
        metavar="CODE",
        help="spoken language, such as en; several, repeated or with commas, to choose from",
    )
    add("--task", choices=get_args(Task), default="transcribe", help="translate writes English")
    add("--prompt", default="", help="text that came before: names, spelling, style")
    add("--temperature", type=float, default=0.0, help="0 is deterministic; up to 2")
    add("--seed", type=int, default=0, help="of the sampling, where temperature is above 0")


def start_of(
    args: argparse.Namespace, screen: Screen, encoding: Encoding, rate: int, channels: int
) -> Start:
    """The `start` message that the options of `add_caption_arguments` ask for."""
    languages = [code for item in args.language for code in item.replace(",", " ").split()]
    shown = screen.live or args.format == "json"
    return Start(
        encoding=encoding,
        rate=rate,
        channels=channels,
        language=languages if len(languages) > 1 else next(iter(languages), None),
        task=args.task,
        temperature=args.temperature,
        seed=args.seed,
        partials=shown if args.partials is None else args.partials,
        prompt=args.prompt,
    )


def run_verb(
    name: str,
    args: argparse.Namespace,
    verb: Callable[[argparse.Namespace, Screen], Coroutine[Any, Any, int]],
) -> int:
    """Open the output, run the verb, leave the terminal clean. The exit status."""
    try:
        with (
            Path(args.output).open("w", encoding="utf-8")
            if args.output
            else nullcontext(sys.stdout) as out
        ):
            screen = Screen(name, FORMATS[args.format](), out, sys.stderr)
            try:
                return asyncio.run(verb(args, screen))
            finally:
                screen.close()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read the captions has gone. Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        sys.stderr.write(f"{name}: cannot write {args.output or 'the captions'}: {error}\n")
        return 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("audio", nargs="+", metavar="AUDIO", help="a file, or - for raw samples")
    parser.add_argument(
        "--pace",
        choices=["fast", "realtime"],
        default="fast",
        help="as fast as the daemon takes it, or as the sound is played (default: fast)",
    )
    raw = parser.add_argument_group("the format of -")
    raw.add_argument("--rate", type=int, metavar="HZ", help=f"default: {SAMPLE_RATE}")
    raw.add_argument("--encoding", choices=get_args(Encoding), help="default: s16le")
    raw.add_argument("--channels", type=int, metavar="N", help="interleaved (default: 1)")
    add_caption_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Caption every file. 0; 1 if anything failed; 2 for contradictory options; 130 after Ctrl-C."""
    if "-" not in args.audio and (args.rate or args.encoding or args.channels):
        sys.stderr.write(f"{NAME}: --rate, --encoding and --channels are for raw audio, with -\n")
        return USAGE
    return run_verb(NAME, args, _caption_all)
