"""Captions as people read them: lines, JSON lines, SRT, WebVTT, and the live line of a terminal.

Turns messages into text and nothing else: no socket, no audio, no arguments.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TextIO, assert_never

from streaming.protocol import (
    SAMPLE_RATE,
    Closed,
    Error,
    Final,
    Lag,
    Partial,
    Ready,
    ServerMessage,
    Speech,
    encode,
)

LINE_COLUMNS = 42  # what subtitling guidelines take for readable
CUE_LINES = 2
# Full-width marks are those of Chinese and Japanese.
SENTENCE_END = re.compile("[.!?\u2026\u3002\uff01\uff1f][\"')\\]\u2019\u201d\u00bb]*$")

CLEAR = "\r\x1b[K"
DIM = "\x1b[2m"
PLAIN = "\x1b[0m"
DEFAULT_COLUMNS = 80
BEHIND_S = 2.0  # a `lag` of less says that the daemon has caught up
METER_CELLS = 10
METER_FLOOR_DB = -60.0


def printable(text: str) -> str:
    """`text` with every control character and line break as one space; the length stays."""
    unsafe = ("Cc", "Zl", "Zp")
    return "".join(" " if unicodedata.category(c) in unsafe else c for c in text)


def columns(text: str) -> int:
    """The width of `text` on a terminal or a screen: wide characters take two columns, marks none."""
    return sum(map(_character_columns, text))


def _character_columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


@dataclass(frozen=True, slots=True)
class Cue:
    """What stands on the screen from `start` to `end`, in milliseconds."""

    start: int
    end: int
    lines: tuple[str, ...]


def cues(start: int, end: int, text: str) -> list[Cue]:
    """`text` as cues that fill [start, end) milliseconds, times shared in proportion to the width.

    Cues follow each other without overlap and last at least one millisecond each, if need be
    beyond `end`. Text without a word gives no cue.
    """
    portions = _portions(text)
    weights = [sum(map(columns, lines)) for lines in portions]
    end = max(end, start + len(portions))
    result: list[Cue] = []
    begin, spoken = start, 0
    for index, (lines, weight) in enumerate(zip(portions, weights, strict=True)):
        spoken += weight
        shared = start + (end - start) * spoken // max(sum(weights), 1)
        latest = end - (len(portions) - index - 1)  # leaves the cues to come their millisecond
        stop = min(max(shared, begin + 1), latest)
        result.append(Cue(begin, stop, lines))
        begin = stop
    return result


def _portions(text: str) -> list[tuple[str, ...]]:
    """Cut into cues of at most two lines, of about equal width, sooner where a sentence ends."""
    whole = columns(" ".join(text.split()))
    count = -(-whole // (CUE_LINES * LINE_COLUMNS))
    portions: list[tuple[str, ...]] = []
    taken: list[tuple[str, str]] = []
    lines: list[str] = []  # `taken`, each line filled before the next: tells whether more fits
    for glue, word in _words(text):
        if lines and columns(lines[-1] + glue + word) <= LINE_COLUMNS:
            lines[-1] += glue + word
        elif len(lines) < CUE_LINES:
            lines.append(word)
        else:
            portions.append(_balanced(taken))
            taken, lines = [], [word]
        taken.append((glue, word))
        share_is_taken = sum(map(columns, lines)) * count >= whole
        if share_is_taken or (len(lines) == CUE_LINES and SENTENCE_END.search(word)):
            portions.append(_balanced(taken))
            taken, lines = [], []
    return [*portions, _balanced(taken)] if taken else portions


def _balanced(words: list[tuple[str, str]]) -> tuple[str, ...]:
    """One line if it fits, else the two lines that differ least."""
    text = _joined(words)
    if columns(text) <= LINE_COLUMNS:
        return (text,)
    pairs = [(_joined(words[:cut]), _joined(words[cut:])) for cut in range(1, len(words))]
    return min(pairs, key=lambda lines: max(map(columns, lines)))


def _joined(words: list[tuple[str, str]]) -> str:
    """The words with what joins them, but nothing before the first."""
    return "".join(glue + word for glue, word in words).strip()


def _words(text: str) -> Iterator[tuple[str, str]]:
    """(what joins it to the word before, word); what is wider than a line is cut to lines."""
    for word in printable(text).split():
        glue, rest = " ", word
        while columns(rest) > LINE_COLUMNS:
            head = _head(rest, LINE_COLUMNS)
            yield glue, head
            glue, rest = "", rest[len(head) :]
        yield glue, rest


def _head(text: str, width: int) -> str:
    """The longest beginning of `text` that is at most `width` columns wide."""
    taken = 0
    for index, character in enumerate(text):
        taken += _character_columns(character)
        if taken > width:
            return text[:index]
    return text


class Format(Protocol):
    """Messages of one or more sessions, in order, to text; `opening` stands before the first."""

    opening: str

    def render(self, message: ServerMessage) -> str:
        """What the message adds to the output; often nothing."""


class Text:
    """One line for each final that has words."""

    opening = ""

    def render(self, message: ServerMessage) -> str:
        """The text of a final."""
        text = printable(message.text).strip() if isinstance(message, Final) else ""
        return f"{text}\n" if text else ""


class JsonLines:
    """Every message as the daemon sent it, one a line."""

    opening = ""

    def render(self, message: ServerMessage) -> str:
        """The message itself."""
        return f"{encode(message)}\n"


class Subtitles:
    """SRT or WebVTT. Sessions follow each other: each begins where the audio before it ended."""

    def __init__(self, *, vtt: bool) -> None:
        self.opening = "WEBVTT\n\n" if vtt else ""
        self._vtt = vtt
        self._number = 0
        self._offset = 0  # ms: where the running session begins
        self._reached = 0  # ms: where the output, or the audio, ends so far

    def render(self, message: ServerMessage) -> str:
        """The cues of a final, later than all cues before."""
        match message:
            case Ready():
                self._offset = self._reached
            case Closed():
                audio = message.received * 1000 // SAMPLE_RATE
                self._reached = max(self._reached, self._offset + audio)
            case Final():
                start = max(self._offset + round(message.start * 1000), self._reached)
                made = cues(start, self._offset + round(message.end * 1000), message.text)
                if made:
                    self._reached = made[-1].end
                return "".join(map(self._block, made))
            case Speech() | Partial() | Lag() | Error():
                pass
            case _:
                assert_never(message)
        return ""

    def _block(self, cue: Cue) -> str:
        self._number += 1
        text = "\n".join(cue.lines)
        if self._vtt:
            text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        times = f"{self._clock(cue.start)} --> {self._clock(cue.end)}"
        return f"{self._number}\n{times}\n{text}\n\n"

    def _clock(self, ms: int) -> str:
        seconds, ms = divmod(ms, 1000)
        point = "." if self._vtt else ","
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{ms:03}"


FORMATS: dict[str, Callable[[], Format]] = {
    "text": Text,
    "json": JsonLines,
    "srt": lambda: Subtitles(vtt=False),
    "vtt": lambda: Subtitles(vtt=True),
}


class Screen:
    """Where messages go: to `out` in the chosen format, and to the live line if `err` is a terminal.

    The live line shows the newest partial, its stable part plain and the rest dim, and is wiped
    before anything else is written. troubles: how many error messages the daemon has sent.
    """

    def __init__(self, name: str, form: Format, out: TextIO, err: TextIO) -> None:
        self.live = err.isatty()
        self.troubles = 0
        self._name = name
        self._format = form
        self._out = out
        self._err = err
        self._partial: Partial | None = None
        self._lag_s = 0.0
        self._level_db: float | None = None
        self._drawn = ""
        self._write(form.opening)

    def show(self, message: ServerMessage) -> None:
        """Write what the format makes of the message, and keep the live line true."""
        match message:
            case Partial():
                self._partial = message
            case Final():
                if self._partial is not None and self._partial.utterance <= message.utterance:
                    self._partial = None
            case Ready() | Closed():
                self._partial, self._lag_s = None, 0.0
            case Lag():
                self._lag_s = message.seconds if message.seconds >= BEHIND_S else 0.0
            case Error():
                self.troubles += 1
                if not message.fatal:  # a fatal one is told by whoever catches FatalError
                    self.tell(f"{message.message} ({message.code})")
            case Speech():
                pass
            case _:
                assert_never(message)
        self._write(self._format.render(message))
        self._draw()

    def level(self, dbfs: float | None) -> None:
        """Show the sound level beside the partial; None takes the meter away."""
        self._level_db = dbfs
        self._draw()

    def tell(self, text: str) -> None:
        """Say something to the user, on `err`."""
        self._wipe()
        self._err.write(f"{self._name}: {text}\n")
        self._err.flush()
        self._draw()

    def close(self) -> None:
        """Leave the terminal clean."""
        self._partial, self._level_db, self._lag_s = None, None, 0.0
        self._wipe()

    def _write(self, text: str) -> None:
        if text:
            self._wipe()
            self._out.write(text)
            self._out.flush()  # captions are live: whoever reads the pipe wants them now

    def _wipe(self) -> None:
        if self._drawn:
            self._drawn = ""
            self._err.write(CLEAR)
            self._err.flush()

    def _draw(self) -> None:
        if not self.live:
            return
        line = self._line()
        if line != self._drawn:
            self._drawn = line
            self._err.write(CLEAR + line)
            self._err.flush()

    def _line(self) -> str:
        """Meter, lag and the end of the partial, as wide as the terminal at most."""
        head = "" if self._level_db is None else meter(self._level_db) + " "
        if self._lag_s:
            head += f"({self._lag_s:.0f} s behind) "
        text, stable = "", 0
        if self._partial is not None:
            text, stable = printable(self._partial.text), self._partial.stable
        # A terminal of unknown size reports 0; the last column stays free, lest the line wraps.
        width = os.get_terminal_size(self._err.fileno()).columns or DEFAULT_COLUMNS
        room = max(width - 1 - columns(head), 0)
        cut = len(text) - len(_head(text[::-1], room))
        settled, tentative = text[cut : max(stable, cut)], text[max(stable, cut) :]
        return head + settled + (f"{DIM}{tentative}{PLAIN}" if tentative else "")


def meter(dbfs: float) -> str:
    """A bar for a level between -60 and 0 dBFS."""
    share = 1 - max(min(dbfs, 0.0), METER_FLOOR_DB) / METER_FLOOR_DB
    filled = round(share * METER_CELLS)
    return f"[{'#' * filled:{METER_CELLS}}]"
