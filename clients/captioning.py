"""Captioning, shared by the verbs that caption: options, interrupts, one session, a clean end.

Reads no audio and knows no device: each verb has a coroutine that feeds the session.
"""

import argparse
import asyncio
import io
import logging
import os
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self, get_args

import clients.stream
from clients.caption_formats import FORMATS, Screen
from clients.stream import DEFAULT_URL, Captions, ConnectError, RefusedError, connect
from streaming.protocol import Encoding, Stability, Start, Task

SUBTITLES = ("srt", "vtt")  # formats whose cues follow the words
NUMBERS = ("as_is", "digits", "words")
LOADING_S = 1.0  # between two attempts at a daemon that loads

# The effect of a signal outside `Interrupt`.
DEFAULTS: dict[signal.Signals, Callable[[int, FrameType | None], Any] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class Interrupt:
    """While entered, the first SIGINT or SIGTERM sets `requested`; a second one ends the program.

    status: the exit status of the signal, 128 + its number; 0 if there was none. last_act: runs before
    a second signal ends the program: in the signal's handler, at once, whatever the program waits for.
    It may not wait itself.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.status = 0
        self.last_act: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        for number in DEFAULTS:
            asyncio.get_running_loop().add_signal_handler(number, self._ask, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in DEFAULTS:
            asyncio.get_running_loop().remove_signal_handler(number)
        self._release()

    def _ask(self, number: signal.Signals) -> None:
        self.status = 128 + number
        self.requested.set()
        for each in DEFAULTS:
            # Outside the loop: a second signal counts even where the loop is stuck.
            asyncio.get_running_loop().remove_signal_handler(each)
            signal.signal(each, self._insist)

    def _insist(self, number: int, _frame: FrameType | None) -> None:
        self._release()
        if self.last_act is not None:
            self.last_act()
        signal.raise_signal(number)

    def _release(self) -> None:
        for number, default in DEFAULTS.items():
            signal.signal(number, default)


async def caption(
    url: str,
    start: Start,
    feed: Callable[[Captions], Awaitable[None]],
    screen: Screen,
    interrupt: Interrupt,
    *,
    finish: Callable[[], None] | None = None,
) -> None:
    """Run one session: `feed` sends the audio; at its end, or an interrupt, pending finals follow.

    finish: on an interrupt, makes `feed` end by itself once it has sent its audio; without `finish`,
    `feed` is cancelled.

    Raises StreamError, ProtocolError for a bad `start`, and the exception of `feed`, in each case after
    every caption that came is on the screen.
    """
    async with AsyncExitStack() as stack:
        # Recording has begun, so there is something to deliver.
        asked = None if finish else interrupt.requested
        captions = await _connected(stack, url, start, screen, interrupt, asked)
        screen.show(captions.ready)
        sender = asyncio.create_task(_send(captions, feed, interrupt, finish))
        try:
            async for message in captions:
                screen.show(message)
        finally:
            sender.cancel()
            (failure,) = await asyncio.gather(sender, return_exceptions=True)
        if isinstance(failure, Exception):
            raise failure


async def _connected(
    stack: AsyncExitStack,
    url: str,
    start: Start,
    screen: Screen,
    interrupt: Interrupt,
    given_up: asyncio.Event | None,
) -> Captions:
    """A session, which `stack` closes. Waits for a daemon that still loads its model.

    given_up: ends the attempt with a ConnectError.
    """
    token = os.environ.get("CAPTIOND_TOKEN")
    told = False
    while True:
        connecting = asyncio.ensure_future(
            stack.enter_async_context(connect(url, start, token=token))
        )
        if given_up is not None:
            asked = asyncio.ensure_future(given_up.wait())
            await asyncio.wait([connecting, asked], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if not connecting.done():
                connecting.cancel()
                raise ConnectError("interrupted before a session began")
        try:
            return await connecting
        except RefusedError as refusal:
            if not refusal.loading or interrupt.requested.is_set():
                raise
        if not told:
            screen.tell("the daemon is still loading its model; waiting for it, Ctrl-C ends")
            told = True
        with suppress(TimeoutError):
            await asyncio.wait_for(interrupt.requested.wait(), LOADING_S)


async def _send(
    captions: Captions,
    feed: Callable[[Captions], Awaitable[None]],
    interrupt: Interrupt,
    finish: Callable[[], None] | None,
) -> None:
    """Feed until the audio ends or the user interrupts, then stop the stream in any case."""
    feeding = asyncio.ensure_future(feed(captions))
    asked = asyncio.ensure_future(interrupt.requested.wait())
    try:
        await asyncio.wait([feeding, asked], return_when=asyncio.FIRST_COMPLETED)
        if finish is not None and not feeding.done():
            finish()
            await asyncio.wait([feeding])
    finally:
        feeding.cancel()
        asked.cancel()
        failure, _ = await asyncio.gather(feeding, asked, return_exceptions=True)
    await captions.stop()
    if isinstance(failure, Exception):
        raise failure


def add_caption_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every verb that captions."""
    add = parser.add_argument
    url = os.environ.get("CAPTIOND_URL", DEFAULT_URL)
    add("--url", default=url, help="the daemon (variable CAPTIOND_URL; now %(default)s)")
    add(
        "--format",
        choices=list(FORMATS),
        help="of the output (default: as --output ends, in .srt, .vtt or .json, else text)",
    )
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
    add("--prompt", default="", metavar="TEXT", help="what came before: names, spelling, style")
    add(
        "--hot-word",
        action="append",
        default=[],
        metavar="WORD",
        help="a word or name to listen for; may be repeated",
    )
    add(
        "--stability",
        choices=get_args(Stability),
        default="revise",
        help="commit takes nothing back",
    )
    add("--words", action="store_true", help="the times of words, in json; srt and vtt have them")
    add(
        "--replace",
        action="append",
        default=[],
        metavar="HEARD=WRITTEN",
        type=_replacement,
        help="write one thing for another; may be repeated",
    )
    add(
        "--block",
        action="append",
        default=[],
        metavar="WORD",
        help="a word to mask; * at its end stands for any ending; may be repeated",
    )
    add("--numbers", choices=NUMBERS, help="all as digits or as words")
    add(
        "--temperature",
        type=float,
        default=0.0,
        metavar="T",
        help="0, always the same text (default), to 2, ever more varied",
    )
    add("--seed", type=int, default=0, metavar="N", help="of the variation (default: 0)")
    parser.epilog = (
        "The daemon is started by `captiond serve`. One that asks for a token gets that of the "
        "variable CAPTIOND_TOKEN; one with a certificate of your own needs SSL_CERT_FILE."
    )


def _replacement(text: str) -> tuple[str, str]:
    heard, sign, written = text.partition("=")
    if not sign or not heard.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not HEARD=WRITTEN")
    return heard.strip(), written.strip()


def start_of(
    args: argparse.Namespace, screen: Screen, encoding: Encoding, rate: int, channels: int
) -> Start:
    """The `start` message of the options of `add_caption_arguments`."""
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
        hot_words=args.hot_word or None,
        stability=args.stability,
        words=args.words or args.format in SUBTITLES,
        replacements=dict(args.replace) or None,
        blocklist=args.block or None,
        numbers=args.numbers,
    )


class Output(io.TextIOWrapper):
    """A file that is truncated at the first text for it: an old one outlives a run that fails.

    Raises OSError at once where it cannot be written.
    """

    def __init__(self, path: str) -> None:
        super().__init__(Path(path).open("ab"), encoding="utf-8")  # noqa: SIM115 - closed with it
        self._begun = False

    def begin(self) -> None:
        """Truncate the file, once."""
        if not self._begun and stat.S_ISREG(os.fstat(self.fileno()).st_mode):
            self.buffer.truncate(0)
        self._begun = True

    def write(self, text: str) -> int:
        """Add `text`."""
        self.begin()
        return super().write(text)


def run_verb(
    name: str,
    args: argparse.Namespace,
    verb: Callable[[argparse.Namespace, Screen], Coroutine[Any, Any, int]],
) -> int:
    """Open the output, run the verb, leave the terminal clean. The exit status."""
    ending = Path(args.output or "").suffix.lower().removeprefix(".")
    args.format = args.format or (ending if ending in FORMATS else "text")

    def program() -> int:
        with Output(args.output) if args.output else nullcontext(sys.stdout) as out:
            screen = Screen(name, FORMATS[args.format](), out, sys.stderr)
            with closing(screen), _told(screen):
                status = asyncio.run(verb(args, screen))
            if isinstance(out, Output) and status == 0:
                out.begin()  # nothing was said: the file shall be empty
            return status

    try:
        return exit_status(program)
    except OSError as error:
        sys.stderr.write(f"{name}: cannot write {args.output or 'the captions'}: {error}\n")
        return 1


@contextmanager
def _told(screen: Screen) -> Iterator[None]:
    """While entered, show the library's log: connections lost and resumed."""
    handler = logging.Handler()
    handler.emit = lambda record: screen.tell(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(clients.stream.__name__)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def exit_status(program: Callable[[], int]) -> int:
    """The result of `program`; 130 if Ctrl-C ends it, 1 if the reader of its output has gone."""
    try:
        return program()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Python would report the error again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
