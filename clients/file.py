"""`captiond file`: captions of recordings, or of raw audio on standard input.

Reads audio and runs sessions one after another. caption_formats.py formats the messages, stream.py has
the wire, captioning.py the session and the options.
"""

import argparse
import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import soundfile

from clients.caption_formats import Screen
from clients.captioning import Interrupt, add_caption_arguments, caption, run_verb, start_of
from clients.stream import Captions, ConnectError, StreamError
from streaming.protocol import SAMPLE_BYTES, SAMPLE_RATE, Encoding, ProtocolError

NAME = "captiond file"
EXACT_IN_INT16 = ("PCM_16", "PCM_U8", "PCM_S8", "ULAW", "ALAW")  # libsndfile's names
BLOCK_S = 0.1
USAGE = 2  # exit status of argparse, too


class SourceError(Exception):
    """Audio that cannot be read; the text names it and says why."""


@dataclass(frozen=True, slots=True)
class Audio:
    """Audio to read once: its format and its `blocks`, each of about a tenth of a second."""

    name: str
    encoding: Encoding
    rate: int
    channels: int
    blocks: AsyncGenerator[bytes, None]

    @property
    def bytes_per_second(self) -> int:
        """Bytes of one second in its format."""
        return self.rate * self.channels * SAMPLE_BYTES[self.encoding]


@contextmanager
def open_file(name: str) -> Iterator[Audio]:
    """Any file that libsndfile or libav reads, video as well, never loaded whole. Raises SourceError."""
    path = Path(name)
    try:
        path.stat()
    except FileNotFoundError:
        raise SourceError(f"{name}: no such file") from None
    except OSError as error:
        raise SourceError(f"{name}: cannot be read ({error.strerror})") from error
    if path.is_dir():
        raise SourceError(f"{name}: is a folder; name the files in it")
    if path.suffix.lower() == ".raw":
        raise SourceError(f"{name}: raw audio has no header; pipe it in, with - and --rate")
    try:
        file = soundfile.SoundFile(path)
    except (soundfile.LibsndfileError, OSError):
        with _container(name) as audio:
            yield audio
        return
    with file:
        if not file.frames:
            raise SourceError(f"{name}: holds no audio")
        yield _decoded(name, file)


@contextmanager
def _container(name: str) -> Iterator[Audio]:
    """What libsndfile does not read. libav is loaded for it alone."""
    from streaming.containers import ContainerError, recording  # noqa: PLC0415 - it takes a while

    async def blocks(found: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
        try:
            for block in found:
                yield block
        except ContainerError as error:
            raise SourceError(f"{name}: {error}") from None

    try:
        with recording(name) as found:
            sound = blocks(found.blocks)
            yield Audio(name, found.encoding, found.rate, found.channels, sound)
    except ContainerError as error:
        raise SourceError(f"{name}: {error}") from None


def _decoded(name: str, file: soundfile.SoundFile) -> Audio:
    exact = file.subtype in EXACT_IN_INT16
    read_as, wire = ("int16", "<i2") if exact else ("float32", "<f4")
    frames = max(round(file.samplerate * BLOCK_S), 1)

    async def blocks() -> AsyncGenerator[bytes, None]:
        # Decoding a tenth of a second takes well under a millisecond: a thread would not pay.
        try:
            while (block := file.read(frames, dtype=read_as, always_2d=True)).size:
                yield block.astype(wire, copy=False).tobytes()
        except soundfile.LibsndfileError as error:
            raise SourceError(f"{name}: damaged at {file.tell()} samples ({error})") from error

    encoding: Encoding = "s16le" if exact else "f32le"
    return Audio(name, encoding, file.samplerate, file.channels, blocks())


def raw_audio(encoding: Encoding, rate: int, channels: int) -> Audio:
    """Samples without a header on standard input. Raises SourceError where that is a terminal."""
    if sys.stdin is None:
        raise SourceError("-: expects raw audio on standard input, which is closed")
    if sys.stdin.isatty():
        raise SourceError("-: expects raw audio on standard input, which is a terminal")
    size = max(round(rate * channels * SAMPLE_BYTES[encoding] * BLOCK_S), 1)
    return Audio("-", encoding, rate, channels, _read(sys.stdin.fileno(), size))


async def _read(descriptor: int, size: int) -> AsyncGenerator[bytes, None]:
    """Yield blocks of at most `size` bytes, as soon as they come. Raises SourceError."""
    mode = os.fstat(descriptor).st_mode
    try:
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            async with aclosing(_read_pipe(descriptor, size)) as blocks:
                async for block in blocks:
                    yield block
        else:  # a file or a device such as /dev/null never blocks
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
        os.set_blocking(descriptor, True)  # as before: other processes may share the pipe


async def speak(captions: Captions, audio: Audio, *, realtime: bool) -> None:
    """Send all of `audio`, at the pace of the sound or as fast as the daemon takes it.

    In real time no block is sent before its time. Raises SourceError if there is no sound in it.
    """
    clock = asyncio.get_running_loop().time
    began, sent = clock(), 0
    async for block in audio.blocks:
        if realtime:
            await asyncio.sleep(began + sent / audio.bytes_per_second - clock())
        await captions.send(block)
        sent += len(block)
    if not sent:
        raise SourceError(f"{audio.name}: holds no audio")


async def _caption_audio(
    audio: Audio, args: argparse.Namespace, screen: Screen, interrupt: Interrupt
) -> None:
    """Caption `audio` in one session. Raises SourceError, StreamError and ProtocolError."""

    async def feed(captions: Captions) -> None:
        await speak(captions, audio, realtime=args.pace == "realtime")

    start = start_of(args, screen, audio.encoding, audio.rate, audio.channels)
    before = screen.captions
    async with aclosing(audio.blocks):
        await caption(args.url, start, feed, screen, interrupt)
    if screen.captions == before and not interrupt.status:
        form = f"{audio.encoding}, {audio.rate} Hz, {audio.channels} channel(s)"
        doubt = f"; is it really raw audio, {form}?" if audio.name == "-" else ""
        screen.tell(f"{audio.name}: no words were heard in it{doubt}")


def _playable(names: Sequence[str], screen: Screen) -> list[str]:
    """The names of readable audio; an error is shown for each of the others, before any session."""
    found = []
    for name in names:
        try:
            # A pipe can be read only once.
            with nullcontext() if name == "-" or Path(name).is_fifo() else open_file(name):
                found.append(name)
        except SourceError as error:
            screen.tell(str(error))
    return found


async def _caption_all(args: argparse.Namespace, screen: Screen) -> int:
    """Caption every file in turn, past those that fail. The exit status."""
    raw: tuple[Encoding, int, int] = (
        args.encoding or "s16le",
        SAMPLE_RATE if args.rate is None else args.rate,
        1 if args.channels is None else args.channels,
    )
    playable = _playable(args.audio, screen)
    failed = playable != args.audio
    with Interrupt() as interrupt:
        for name in playable:
            try:
                with nullcontext(raw_audio(*raw)) if name == "-" else open_file(name) as audio:
                    await _caption_audio(audio, args, screen, interrupt)
            except ConnectError as error:
                screen.tell(str(error))
                return interrupt.status or 1  # the other files would fail, too
            except (SourceError, StreamError, ProtocolError) as error:
                screen.tell(str(error))
                failed = True
            if interrupt.status:
                return interrupt.status
    return 1 if failed or screen.troubles else 0


def _same(name: str, output: str) -> bool:
    try:
        return name != "-" and Path(name).samefile(output)
    except OSError:
        return False  # one of them is not there


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
    named = [value is not None for value in (args.rate, args.encoding, args.channels)]
    if "-" not in args.audio and any(named):
        sys.stderr.write(f"{NAME}: --rate, --encoding and --channels are for raw audio, with -\n")
        return USAGE
    if args.output and any(_same(name, args.output) for name in args.audio):
        sys.stderr.write(f"{NAME}: --output names {args.output}, which is to be read\n")
        return USAGE
    return run_verb(NAME, args, _caption_all)
