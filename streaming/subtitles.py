"""Captions as subtitles: text cut into cues, and SRT or WebVTT of them.

Needs the standard library and the messages alone, so that clients can use it without numpy.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from streaming.protocol import (
    SAMPLE_RATE,
    Closed,
    Error,
    Final,
    Flushed,
    Heard,
    Lag,
    Partial,
    Ready,
    ServerMessage,
    Speech,
)

LINE_COLUMNS = 42  # subtitling guidelines call this readable
CUE_LINES = 2
# Full-width marks are those of Chinese and Japanese.
SENTENCE_END = re.compile("[.!?\u2026\u3002\uff01\uff1f][\"')\\]\u2019\u201d\u00bb]*$")


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
    """The text on the screen from `start` to `end`, in milliseconds."""

    start: int
    end: int
    lines: tuple[str, ...]


def cues(start: int, end: int, text: str) -> list[Cue]:
    """`text` as cues that fill [start, end) milliseconds, times shared in proportion to the width.

    Cues follow each other without overlap and last at least one millisecond each, if need be
    beyond `end`. Text without a word gives no cue.
    """
    portions = _portions(text)
    # Nothing but marks has no width.
    weights = [sum(map(columns, lines)) or 1 for lines in portions]
    end = max(end, start + len(portions))
    result: list[Cue] = []
    begin, shown = start, 0
    for index, (lines, weight) in enumerate(zip(portions, weights, strict=True)):
        shown += weight
        shared = start + (end - start) * shown // sum(weights)
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
            first = head(rest, LINE_COLUMNS)
            yield glue, first
            glue, rest = "", rest[len(first) :]
        yield glue, rest


def head(text: str, width: int) -> str:
    """The longest beginning of `text` that is at most `width` columns wide."""
    taken = 0
    for index, character in enumerate(text):
        taken += _character_columns(character)
        if taken > width:
            return text[:index]
    return text


class Subtitles:
    """SRT or WebVTT. Sessions follow each other: each begins at the end of the audio before it."""

    def __init__(self, *, vtt: bool) -> None:
        self.header = "WEBVTT\n\n" if vtt else ""
        self._vtt = vtt
        self._number = 0
        self._offset = 0  # ms: start of the running session
        self._end = 0  # ms: end of the output, or of the audio, so far

    def render(self, message: ServerMessage) -> str:
        """The cues of a final, later than all cues before."""
        match message:
            case Ready():
                self._offset = self._end
            case Closed():
                audio = message.received * 1000 // SAMPLE_RATE
                self._end = max(self._end, self._offset + audio)
            case Final():
                start = max(self._offset + round(message.start * 1000), self._end)
                made = cues(start, self._offset + round(message.end * 1000), message.text)
                if made:
                    self._end = made[-1].end
                return "".join(map(self._block, made))
            case Speech() | Partial() | Flushed() | Lag() | Heard() | Error():
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
