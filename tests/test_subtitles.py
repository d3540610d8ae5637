"""Captions as text: cues, formats, and the live line on a real pseudo-terminal."""

import io
import itertools
import re
from collections.abc import Iterator
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.subtitles import (
    CLEAR,
    DIM,
    FORMATS,
    LINE_COLUMNS,
    PLAIN,
    Screen,
    columns,
    cues,
    meter,
    printable,
)
from streaming.protocol import Closed, Error, Lag, ServerMessage, Speech, decode_server
from tests.standin import closed, final, partial, ready
from tests.terminal import Terminal, terminal_of

SPEECH = (
    "It listens to live speech, and shows captions while you talk. Then the sentence is "
    "complete, and the final text is written down. Done."
)
TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from(" .!?\n"), max_size=400)


def letters(text: str) -> str:
    return "".join(printable(text).split())


@given(TEXTS)
def test_printable_keeps_the_length_and_drops_what_steers_a_terminal(text: str) -> None:
    """`stable` counts characters, so none may vanish; no escape or line break gets through."""
    assert len(printable(text)) == len(text)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029]", printable(text))


@pytest.mark.parametrize(
    ("text", "width"), [("", 0), ("abc", 3), ("字幕", 4), ("e\u0301", 1), ("\uff21", 2)]
)
def test_columns(text: str, width: int) -> None:
    assert columns(text) == width


@given(st.integers(0, 10**8), st.integers(-5, 12) | st.integers(0, 60_000), TEXTS)
def test_cues_follow_each_other_and_keep_every_letter(start: int, length: int, text: str) -> None:
    """Whatever the text and the time: no overlap, no gap, no empty cue, no line too long."""
    made = cues(start, start + length, text)
    assert letters("".join(itertools.chain(*(cue.lines for cue in made)))) == letters(text)
    times = [start, *(cue.end for cue in made)]
    assert [cue.start for cue in made] == times[:-1]
    assert all(earlier < later for earlier, later in itertools.pairwise(times))
    if made and length >= len(made):
        assert times[-1] == start + length
    for cue in made:
        assert 1 <= len(cue.lines) <= 2
        assert all(line.strip() and columns(line) <= LINE_COLUMNS for line in cue.lines)


def test_a_long_utterance_becomes_cues_that_end_with_sentences() -> None:
    """Two balanced lines each, time in proportion to the letters."""
    made = cues(0, 30_000, SPEECH)
    assert [cue.lines for cue in made] == [
        ("It listens to live speech, and", "shows captions while you talk."),
        ("Then the sentence is complete, and", "the final text is written down."),
        ("Done.",),
    ]
    shares = [(cue.end - cue.start) / 30_000 for cue in made]
    assert shares == pytest.approx([60 / 130, 65 / 130, 5 / 130], abs=0.001)


def test_a_short_utterance_is_one_line() -> None:
    assert [cue.lines for cue in cues(0, 1000, " Good morning. Who is there? ")] == [
        ("Good morning. Who is there?",)
    ]


def test_cues_of_one_sentence_are_about_equally_wide() -> None:
    """No cue of one last word that flashes by."""
    made = cues(0, 10_000, "word " * 18)
    assert [sum(map(columns, cue.lines)) for cue in made] == [48, 39]


def test_text_without_spaces_is_cut_by_its_width() -> None:
    """Chinese and Japanese: a line holds half as many characters."""
    made = cues(0, 30_000, "字" * 100)
    assert [[len(line) for line in cue.lines] for cue in made] == [[21, 21], [21, 21], [16]]


def rendered(name: str, *messages: ServerMessage) -> str:
    form = FORMATS[name]()
    return form.opening + "".join(map(form.render, messages))


SESSION: tuple[ServerMessage, ...] = (
    ready(),
    Speech(event="start", utterance=0, at=0.5),
    partial("good"),
    final(" Good <b>morning</b> & bye", 0.5, 1.75),
    final("", 2.0, 2.5, utterance=1),
    Lag(seconds=3.0, shedding="partials"),
    final(" --> two", 3.0, 3.5, utterance=2),
    closed(64_000),
)


def test_text_has_a_line_for_every_final_with_words() -> None:
    assert rendered("text", *SESSION) == "Good <b>morning</b> & bye\n--> two\n"


def test_text_keeps_a_final_on_its_line() -> None:
    """What a recogniser writes can neither break lines nor steer the terminal."""
    assert rendered("text", final("one\ntwo\x1b[2J\r")) == "one two [2J\n"


def test_json_has_every_message() -> None:
    lines = rendered("json", *SESSION).splitlines()
    assert tuple(map(decode_server, lines)) == SESSION


def test_srt() -> None:
    assert rendered("srt", *SESSION) == (
        "1\n00:00:00,500 --> 00:00:01,750\nGood <b>morning</b> & bye\n\n"
        "2\n00:00:03,000 --> 00:00:03,500\n--> two\n\n"
    )


def test_vtt_has_its_header_and_escapes() -> None:
    """`-->` may not stand in a cue, nor `<` and `&` be taken for markup."""
    assert rendered("vtt", *SESSION) == (
        "WEBVTT\n\n"
        "1\n00:00:00.500 --> 00:00:01.750\nGood &lt;b&gt;morning&lt;/b&gt; &amp; bye\n\n"
        "2\n00:00:03.000 --> 00:00:03.500\n--&gt; two\n\n"
    )


def test_vtt_without_a_caption_is_still_vtt() -> None:
    assert rendered("vtt", ready(), closed()) == "WEBVTT\n\n"


def test_hours() -> None:
    assert "27:46:39,001 --> 27:46:40,000" in rendered("srt", final("x", 99_999.001, 100_000.0))


def test_sessions_follow_each_other_in_time() -> None:
    """The second file begins where the audio of the first one ended."""
    session = (ready(), final("x", 1.0, 2.0), closed(4 * 16_000))
    assert re.findall(r"\d\d:\d\d:\d\d,\d\d\d", rendered("srt", *session, *session)) == [
        *("00:00:01,000", "00:00:02,000"),
        *("00:00:05,000", "00:00:06,000"),
    ]


def test_a_session_without_its_end_counts_up_to_its_last_caption() -> None:
    session = (ready(), final("x", 1.0, 2.0))
    assert "00:00:03,000 --> 00:00:04,000" in rendered("srt", *session, *session)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100), TEXTS), max_size=6))
def test_subtitle_times_never_go_back(finals: list[tuple[float, float, str]]) -> None:
    """Even if a daemon's ranges overlapped."""
    text = rendered("srt", ready(), *(final(words, start, end) for start, end, words in finals))
    times = re.findall(r"^(\S+) --> (\S+)$", text, re.MULTILINE)
    flat = list(itertools.chain(*times))
    assert flat == sorted(flat)
    assert all(start < end for start, end in times)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with terminal_of(columns=40) as terminal:
        yield terminal


def screen_on(terminal: Terminal, out: TextIO) -> Screen:
    return Screen("captiond test", FORMATS["text"](), out, terminal.file)


def test_a_partial_is_live_stable_part_plain_and_the_rest_dim(terminal: Terminal) -> None:
    screen = screen_on(terminal, io.StringIO())
    screen.show(partial("good morn", stable=4))
    assert terminal.seen() == f"{CLEAR}good{DIM} morn{PLAIN}"
    screen.show(partial("good morning", stable=12))
    assert terminal.seen() == f"{CLEAR}good morning"


def test_a_partial_that_stays_is_not_drawn_again(terminal: Terminal) -> None:
    screen = screen_on(terminal, io.StringIO())
    screen.show(partial("same"))
    terminal.seen()
    screen.show(partial("same"))
    assert terminal.seen() == ""


def test_a_final_replaces_the_live_line(terminal: Terminal) -> None:
    """On one terminal: partial, wiped, final as a line."""
    screen = screen_on(terminal, terminal.file)
    screen.show(partial("good"))
    screen.show(final("Good morning."))
    assert terminal.seen() == f"{CLEAR}{DIM}good{PLAIN}{CLEAR}Good morning.\r\n"


def test_a_late_final_leaves_the_next_utterances_partial(terminal: Terminal) -> None:
    out = io.StringIO()
    screen = screen_on(terminal, out)
    screen.show(partial("and", stable=3, utterance=1))
    screen.show(final("One.", utterance=0))
    assert out.getvalue() == "One.\n"
    assert terminal.seen().endswith(f"{CLEAR}and")


def test_a_long_partial_shows_its_end(terminal: Terminal) -> None:
    """The newest words matter; one column stays free so that the line does not wrap."""
    screen = screen_on(terminal, io.StringIO())
    screen.show(partial("x" * 100 + "END", stable=103))
    assert terminal.seen() == f"{CLEAR}{'x' * 36}END"


def test_meter_and_lag_stand_before_the_partial(terminal: Terminal) -> None:
    screen = screen_on(terminal, io.StringIO())
    screen.level(-30.0)
    screen.show(Lag(seconds=3.2, shedding="partials"))
    screen.show(partial("good", stable=4))
    assert terminal.seen().split(CLEAR)[-1] == "[#####     ] (3 s behind) good"
    screen.level(None)
    screen.show(Lag(seconds=0.0, shedding="nothing"))
    assert terminal.seen().split(CLEAR)[-1] == "good"


@pytest.mark.parametrize("seconds", [0.0, 0.2, 1.9])
def test_a_daemon_that_has_caught_up_is_not_behind(seconds: float, terminal: Terminal) -> None:
    """The last `lag` is below two seconds, and none follows to correct it."""
    screen = screen_on(terminal, io.StringIO())
    screen.show(Lag(seconds=2.0, shedding="nothing"))
    assert terminal.seen() == f"{CLEAR}(2 s behind) "
    screen.show(Lag(seconds=seconds, shedding="nothing"))
    assert terminal.seen() == CLEAR


def test_what_is_told_keeps_the_live_line_whole(terminal: Terminal) -> None:
    screen = screen_on(terminal, io.StringIO())
    screen.show(partial("good", stable=4))
    terminal.seen()
    screen.tell("careful")
    assert terminal.seen() == f"{CLEAR}captiond test: careful\r\n{CLEAR}good"


def test_close_leaves_a_clean_line(terminal: Terminal) -> None:
    screen = screen_on(terminal, io.StringIO())
    screen.level(-10.0)
    screen.show(partial("good"))
    terminal.seen()
    screen.close()
    assert terminal.seen() == CLEAR


def test_a_terminal_of_unknown_size_is_taken_for_eighty_columns(terminal: Terminal) -> None:
    terminal.resize(0)
    screen = screen_on(terminal, io.StringIO())
    screen.show(partial("x" * 100, stable=100))
    assert terminal.seen() == f"{CLEAR}{'x' * 79}"


def test_without_a_terminal_nothing_is_live() -> None:
    out, err = io.StringIO(), io.StringIO()
    screen = Screen("captiond test", FORMATS["text"](), out, err)
    screen.level(-10.0)
    for message in SESSION:
        screen.show(message)
    screen.close()
    assert not screen.live
    assert err.getvalue() == ""
    assert out.getvalue() == rendered("text", *SESSION)


def test_errors_are_counted_and_told_unless_fatal() -> None:
    """A fatal error ends the session, and is told by whoever runs it."""
    err = io.StringIO()
    screen = Screen("captiond test", FORMATS["text"](), io.StringIO(), err)
    screen.show(Error(code="decode_failed", message="utterance 0 is lost", fatal=False))
    screen.show(Error(code="internal", message="broken", fatal=True))
    assert err.getvalue() == "captiond test: utterance 0 is lost (decode_failed)\n"
    assert screen.troubles == 2


@pytest.mark.parametrize(
    ("level", "bar"),
    [(-100, ""), (-60, ""), (-30, "#####"), (-3, "##########"), (0, "##########"), (6, "#" * 10)],
)
def test_meter(level: float, bar: str) -> None:
    assert meter(level) == f"[{bar:10}]"


def test_closed_counts_the_audio_that_was_received() -> None:
    """Silence before the end of a file moves the next file, too."""
    account = Closed(received=160_000, speech=0, silence=160_000, refused=0, finals=0)
    assert "00:00:10,000 -->" in rendered("srt", ready(), account, ready(), final("x"))
