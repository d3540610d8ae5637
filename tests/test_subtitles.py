"""Text as cues, and cues as SRT and WebVTT."""

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streaming.protocol import ServerMessage
from streaming.subtitles import LINE_COLUMNS, Subtitles, columns, cues, printable
from tests.support.standin import SESSION, closed, final, ready

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
@example(0, 2, "\u00ad")  # a word without any width
def test_cues_follow_each_other_and_keep_every_letter(start: int, length: int, text: str) -> None:
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
    form = Subtitles(vtt=name == "vtt")
    return form.header + "".join(map(form.render, messages))


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
