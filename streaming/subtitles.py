"""Captions as subtitles: text cut into cues, and SRT or WebVTT of them.

Needs the standard library and the messages alone, so that clients can use it without numpy.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import assert_never

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
)

LINE_COLUMNS = 42  # subtitling guidelines call this readable
CUE_LINES = 2
READ_COLUMNS = 20  # a second: so much can be read
LEAST_MS = 833  # shorter cues are missed
PAUSE_MS = 1_000  # a longer one divides cues
FLICKER_MS = 250  # a shorter time between two cues is filled
LINGER_MS = 500  # so long a cue may stay behind its utterance, lest it delays the next one
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


@dataclass(frozen=True, slots=True)
class Timed:
    """A text without line breaks, spoken from `start` to `end`, in milliseconds.

    glue: what joins it to the text before.
    """

    text: str
    start: int
    end: int
    glue: str = " "


def cues(start: int, end: int, text: str, words: Sequence[Timed] = ()) -> list[Cue]:
    """`text`, spoken in [start, end) milliseconds, as cues.

    words: those of the text, with their times; a cue begins with its first word, ends with its last or
    later where there is room to read it, and ends at a pause. Without words the cues fill [start, end),
    and share the time in proportion to the width.

    Cues do not overlap and last at least one millisecond each, if need be beyond `end`. Text without a
    word gives no cue.
    """
    timed = bool(words) and _letters(text) == _letters("".join(word.text for word in words))
    spoken = words if timed else (Timed(printable(text), start, max(end, start)),)
    portions = _portions(_pieces(text, spoken))
    limit = max(end + (LINGER_MS if timed else 0), start + len(portions))
    result: list[Cue] = []
    begin = start
    for index, pieces in enumerate(portions):
        left = len(portions) - index  # cues to come, each of a millisecond at least
        begin = min(max(pieces[0].start, begin), limit - left)
        lines = _balanced(pieces)
        room = portions[index + 1][0].start if left > 1 else limit
        wanted = begin + max(LEAST_MS, sum(map(columns, lines)) * 1000 // READ_COLUMNS)
        stop = max(pieces[-1].end, min(wanted, room))
        if 0 < room - stop < FLICKER_MS and left > 1:
            stop = room
        stop = min(max(stop, begin + 1), limit - left + 1)
        result.append(Cue(begin, stop, lines))
        begin = stop
    return result


def _letters(text: str) -> str:
    return "".join(printable(text).split())


def _portions(pieces: Sequence[Timed]) -> list[list[Timed]]:
    """Cut into cues of at most two lines.

    Sentences share a cue where they fit and no pause divides them; a longer one is cut into cues of
    about equal width.
    """
    groups: list[list[Timed]] = []
    for sentence in _sentences(pieces):
        near = bool(groups) and sentence[0].start - groups[-1][-1].end < PAUSE_MS
        if near and _fits(groups[-1] + sentence):
            groups[-1] += sentence
        else:
            groups.append(sentence)
    return [portion for group in groups for portion in _shares(group)]


def _sentences(pieces: Sequence[Timed]) -> Iterator[list[Timed]]:
    """Cut where sentences end, and at pauses."""
    taken: list[Timed] = []
    for piece in pieces:
        if taken and piece.start - taken[-1].end >= PAUSE_MS:
            yield taken
            taken = []
        taken.append(piece)
        if SENTENCE_END.search(piece.text):
            yield taken
            taken = []
    if taken:
        yield taken


def _shares(pieces: list[Timed]) -> Iterator[list[Timed]]:
    """Cut into as few cues as may be, of about equal width."""
    whole = columns(_joined(pieces))
    count = -(-whole // (CUE_LINES * LINE_COLUMNS))
    taken: list[Timed] = []
    for piece in pieces:
        if taken and not _fits([*taken, piece]):
            yield taken
            taken = []
        taken.append(piece)
        if columns(_joined(taken)) * count >= whole:
            yield taken
            taken = []
    if taken:
        yield taken


def _fits(pieces: Sequence[Timed]) -> bool:
    """Whether a cue has room for them: each line filled before the next."""
    lines = [""]
    for piece in pieces:
        longer = lines[-1] + piece.glue + piece.text if lines[-1] else piece.text
        if columns(longer) <= LINE_COLUMNS:
            lines[-1] = longer
        else:
            lines.append(piece.text)
    return len(lines) <= CUE_LINES


def _balanced(pieces: Sequence[Timed]) -> tuple[str, ...]:
    """One line if it fits, else the two lines that differ least."""
    text = _joined(pieces)
    if columns(text) <= LINE_COLUMNS:
        return (text,)
    pairs = [(_joined(pieces[:cut]), _joined(pieces[cut:])) for cut in range(1, len(pieces))]
    return min(pairs, key=lambda lines: max(map(columns, lines)))


def _joined(pieces: Sequence[Timed]) -> str:
    """The pieces with what joins them, but nothing before the first."""
    return "".join(piece.glue + piece.text for piece in pieces).strip()


def _pieces(text: str, spoken: Sequence[Timed]) -> list[Timed]:
    """The words of `text`, those that are wider than a line cut to lines, with the times of `spoken`."""
    starts: list[int] = []  # of each letter: a word's share its time in proportion to their width
    ends: list[int] = []
    for word in spoken:
        letters = _letters(word.text)
        widths = [_character_columns(letter) for letter in letters]
        reached = list(accumulate(widths if any(widths) else [1] * len(letters), initial=0))
        edges = [word.start + (word.end - word.start) * part // reached[-1] for part in reached[1:]]
        starts += [word.start, *edges[:-1]][: len(edges)]
        ends += edges
    pieces: list[Timed] = []
    place = 0
    for glue, piece in _words(text):
        last = place + len(piece)
        pieces.append(Timed(piece, starts[place], ends[last - 1], glue))
        place = last
    return pieces


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
                start = max(self._ms(message.start), self._end)
                words = [
                    Timed(word.text, self._ms(word.start), self._ms(word.end))
                    for word in message.words or ()
                ]
                made = cues(start, self._ms(message.end), message.text, words)
                if made:
                    self._end = made[-1].end
                return "".join(map(self._block, made))
            case Speech() | Partial() | Configured() | Flushed() | Lag() | Heard() | Error():
                pass
            case _:
                assert_never(message)
        return ""

    def _ms(self, seconds: float) -> int:
        """Session time as time of the output."""
        return self._offset + round(seconds * 1000)

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
