"""Captions as text: cues, formats, and the live line on a real pseudo-terminal."""

import io
from collections.abc import Iterator
from typing import TextIO

import pytest
from msgspec import structs

from clients.caption_formats import CLEAR, DIM, FORMATS, PLAIN, Screen, meter
from streaming.protocol import Closed, Error, Lag, ServerMessage, decode_server
from tests.support.standin import SESSION, final, partial, ready
from tests.support.terminal import Terminal, terminal_of


def rendered(name: str, *messages: ServerMessage) -> str:
    form = FORMATS[name]()
    return form.header + "".join(map(form.render, messages))


def test_text_has_a_line_for_every_final_with_words() -> None:
    assert rendered("text", *SESSION) == "Good <b>morning</b> & bye\n--> two\n"


def test_text_keeps_a_final_on_its_line() -> None:
    """What a recogniser writes can neither break lines nor steer the terminal."""
    assert rendered("text", final("one\ntwo\x1b[2J\r")) == "one two [2J\n"


def test_json_has_every_message() -> None:
    lines = rendered("json", *SESSION).splitlines()
    assert tuple(map(decode_server, lines)) == SESSION


def test_json_keeps_the_sessions_secret() -> None:
    """What resumes it stands in no file and no journal."""
    line = rendered("json", structs.replace(ready(), key="secret"))
    assert "secret" not in line
    assert decode_server(line) == ready()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with terminal_of(columns=40) as terminal:
        yield terminal


def screen_on(terminal: Terminal, out: TextIO) -> Screen:
    return Screen("captiond test", FORMATS["text"](), out, terminal.file)


@pytest.fixture
def screen(terminal: Terminal) -> Screen:
    return screen_on(terminal, io.StringIO())


def test_a_partial_is_plain_where_stable_and_else_dim(terminal: Terminal, screen: Screen) -> None:
    screen.show(partial("good morn", stable=4))
    assert terminal.seen() == f"{CLEAR}good{DIM} morn{PLAIN}"
    screen.show(partial("good morning", stable=12))
    assert terminal.seen() == f"{CLEAR}good morning"


def test_a_partial_that_stays_is_not_drawn_again(terminal: Terminal, screen: Screen) -> None:
    screen.show(partial("same"))
    terminal.seen()
    screen.show(partial("same"))
    assert terminal.seen() == ""


def test_a_final_replaces_the_live_line(terminal: Terminal) -> None:
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


def test_a_long_partial_shows_its_end(terminal: Terminal, screen: Screen) -> None:
    """The newest words matter; one column stays free so that the line does not wrap."""
    screen.show(partial("x" * 100 + "END", stable=103))
    assert terminal.seen() == f"{CLEAR}{'x' * 36}END"


def test_meter_and_lag_stand_before_the_partial(terminal: Terminal, screen: Screen) -> None:
    screen.level(-30.0)
    screen.show(Lag(seconds=3.2, shedding="partials"))
    screen.show(partial("good", stable=4))
    assert terminal.seen().split(CLEAR)[-1] == "[#####     ] (3 s behind) good"
    screen.level(None)
    screen.show(Lag(seconds=0.0, shedding="nothing"))
    assert terminal.seen().split(CLEAR)[-1] == "good"


@pytest.mark.parametrize("seconds", [0.0, 0.2, 1.9])
def test_who_caught_up_is_not_behind(seconds: float, terminal: Terminal, screen: Screen) -> None:
    """The last `lag` is below two seconds, and none follows to correct it."""
    screen.show(Lag(seconds=2.0, shedding="nothing"))
    assert terminal.seen() == f"{CLEAR}(2 s behind) "
    screen.show(Lag(seconds=seconds, shedding="nothing"))
    assert terminal.seen() == CLEAR


def test_what_is_told_keeps_the_live_line_whole(terminal: Terminal, screen: Screen) -> None:
    screen.show(partial("good", stable=4))
    terminal.seen()
    screen.tell("careful")
    assert terminal.seen() == f"{CLEAR}captiond test: careful\r\n{CLEAR}good"


def test_close_leaves_a_clean_line(terminal: Terminal, screen: Screen) -> None:
    screen.level(-10.0)
    screen.show(partial("good"))
    terminal.seen()
    screen.close()
    assert terminal.seen() == CLEAR


def test_a_terminal_of_unknown_size_has_eighty_columns(terminal: Terminal, screen: Screen) -> None:
    terminal.resize(0)
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
