"""Formats of captions: lines, JSON lines, subtitles, and the live line of a terminal.

Turns messages into text, and knows no socket, no audio and no arguments.
"""

import os
from collections.abc import Callable
from typing import Protocol, TextIO, assert_never

import msgspec

from streaming import protocol
from streaming.subtitles import Subtitles, columns, head, printable

CLEAR = "\r\x1b[K"
DIM = "\x1b[2m"
PLAIN = "\x1b[0m"
DEFAULT_COLUMNS = 80
BEHIND_S = 2.0  # a `lag` of less says that the daemon has caught up
METER_CELLS = 10
METER_FLOOR_DB = -60.0


class Format(Protocol):
    """From the messages of one or more sessions, in order, to text; `header` stands before the first."""

    header: str

    def render(self, message: protocol.ServerMessage) -> str:
        """The text that the message adds to the output; often none."""


class Text:
    """One line for each final that has words."""

    header = ""

    def render(self, message: protocol.ServerMessage) -> str:
        """The text of a final."""
        text = printable(message.text).strip() if isinstance(message, protocol.Final) else ""
        return f"{text}\n" if text else ""


class JsonLines:
    """Every message as the daemon sent it, one a line, without the key that resumes the session."""

    header = ""

    def render(self, message: protocol.ServerMessage) -> str:
        """The message itself."""
        if isinstance(message, protocol.Ready):
            message = msgspec.structs.replace(message, key=None)
        return f"{protocol.encode(message)}\n"


FORMATS: dict[str, Callable[[], Format]] = {
    "text": Text,
    "json": JsonLines,
    "srt": lambda: Subtitles(vtt=False),
    "vtt": lambda: Subtitles(vtt=True),
}


class Screen:
    """Writes messages to `out` in the chosen format, and to the live line if `err` is a terminal.

    The live line shows the newest partial, its stable part plain and the rest dim, and is wiped
    before anything else is written. troubles: how many error messages the daemon has sent.
    captions: how many finals with words.
    """

    def __init__(self, name: str, form: Format, out: TextIO, err: TextIO) -> None:
        self.live = err.isatty()
        self.troubles = 0
        self.captions = 0
        self._name = name
        self._format = form
        self._out = out
        self._err = err
        self._partial: protocol.Partial | None = None
        self._lag_s = 0.0
        self._level_db: float | None = None
        self._drawn = ""
        self._header = form.header

    def show(self, message: protocol.ServerMessage) -> None:
        """Write the message in the format, and update the live line."""
        self._write(self._header)
        self._header = ""
        match message:
            case protocol.Partial():
                self._partial = message
            case protocol.Final():
                self.captions += bool(message.text.strip())
                if self._partial is not None and self._partial.utterance <= message.utterance:
                    self._partial = None
            case protocol.Ready() | protocol.Closed():
                self._partial, self._lag_s = None, 0.0
            case protocol.Lag():
                self._lag_s = message.seconds if message.seconds >= BEHIND_S else 0.0
            case protocol.Error():
                self.troubles += 1
                if not message.fatal:  # the handler of FatalError reports a fatal one
                    self.tell(f"{message.message} ({message.code})")
            case protocol.Speech() | protocol.Configured() | protocol.Flushed() | protocol.Heard():
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
        """Write a line for the user to `err`."""
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
            self._out.flush()  # captions are live: the reader of a pipe wants them now

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
        before = "" if self._level_db is None else meter(self._level_db) + " "
        if self._lag_s:
            before += f"({self._lag_s:.0f} s behind) "
        text, stable = "", 0
        if self._partial is not None:
            text, stable = printable(self._partial.text), self._partial.stable
        # A terminal of unknown size reports 0; the last column stays free, lest the line wraps.
        width = os.get_terminal_size(self._err.fileno()).columns or DEFAULT_COLUMNS
        room = max(width - 1 - columns(before), 0)
        cut = len(text) - len(head(text[::-1], room))
        settled, tentative = text[cut : max(stable, cut)], text[max(stable, cut) :]
        return before + settled + (f"{DIM}{tentative}{PLAIN}" if tentative else "")


def meter(dbfs: float) -> str:
    """A bar for a level between -60 and 0 dBFS."""
    share = 1 - max(min(dbfs, 0.0), METER_FLOOR_DB) / METER_FLOOR_DB
    filled = round(share * METER_CELLS)
    return f"[{'#' * filled:{METER_CELLS}}]"
