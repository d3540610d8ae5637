"""Text as cues, and cues as SRT and WebVTT."""

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streaming.protocol import ServerMessage
from streaming.subtitles import LINE_COLUMNS, Cue, Subtitles, Timed, columns, cues, printable
from tests.support.standin import SESSION, closed, final, ready, spoken

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
    """Two balanced lines each, time in proportion to the letters; no cue of one short sentence."""
    made = cues(0, 30_000, SPEECH)
    assert [cue.lines for cue in made] == [
        ("It listens to live speech, and", "shows captions while you talk."),
        ("Then the sentence is complete, and", "the final text is written down. Done."),
    ]
    shares = [(cue.end - cue.start) / 30_000 for cue in made]
    assert shares == pytest.approx([51 / 111, 60 / 111], abs=0.001)


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


def told(*words: tuple[str, int, int]) -> tuple[str, list[Timed]]:
    """A text of these words, and their times."""
    return " ".join(text for text, _, _ in words), [Timed(*word) for word in words]


SLOW = told(
    ("Well,", 500, 800),
    ("we", 2_900, 3_000),
    ("should", 3_100, 3_500),
    ("wait.", 4_200, 4_700),
    ("For", 5_400, 5_600),
    ("what?", 5_700, 6_000),
)


def test_cues_follow_the_words() -> None:
    """They begin with their first word, end with the last, and stay where there is room to read."""
    text, words = SLOW
    assert cues(0, 6_200, text, words) == [
        Cue(500, 1_333, ("Well,",)),  # the shortest time
        Cue(2_900, 6_000, ("we should wait. For what?",)),
    ]
    assert cues(4_000, 6_200, text, words)[0].start == 4_000, "no cue lies before those before it"


def test_a_sentence_that_does_not_fit_has_a_cue_of_its_own() -> None:
    first = [(word, 300 * n, 300 * n + 250) for n, word in enumerate([*["word"] * 12, "end."])]
    text, words = told(*first, *((word, at + 4_000, end + 4_000) for word, at, end in first))
    made = cues(0, 8_000, text, words)
    assert [(cue.start, cue.end) for cue in made] == [(0, 4_000), (4_000, 7_850)]
    assert all(cue.lines[-1].endswith("end.") for cue in made)


def test_a_fast_cue_stays_to_be_read() -> None:
    """Up to the next one, or half a second behind the utterance, and no longer."""
    text, words = told(("A" * 40, 0, 500), ("B" * 40 + ".", 500, 1_000), ("C" * 30, 2_300, 2_600))
    made = cues(0, 2_700, text, words)
    assert [(cue.start, cue.end) for cue in made] == [(0, 2_300), (2_300, 3_200)]


def test_words_that_are_not_those_of_the_text_have_no_times() -> None:
    text, words = SLOW
    assert cues(0, 6_200, f"{text} No.", words) == cues(0, 6_200, f"{text} No.")


@given(
    st.lists(st.tuples(TEXTS, st.integers(0, 3_000), st.integers(0, 3_000)), max_size=12),
    st.integers(0, 10_000),
)
def test_cues_keep_every_letter_whatever_the_times(
    said: list[tuple[str, int, int]], start: int
) -> None:
    at, words = 0, []
    for text, gap, length in said:
        words.append(Timed(text, at + gap, at + gap + length))
        at += gap + length
    made = cues(start, at, " ".join(word.text for word in words), words)
    shown = letters("".join(itertools.chain(*(cue.lines for cue in made))))
    assert shown == letters("".join(word.text for word in words))
    assert all(cue.start < cue.end for cue in made)
    assert all(a.end <= b.start for a, b in itertools.pairwise(made))


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


def test_subtitles_follow_the_words_of_their_session() -> None:
    """The second session's times begin where the first one's audio ended."""
    one = final("Yes.", 0.5, 2.0, words=spoken(("Yes.", 0.8, 1.7)))
    times = re.findall(r"\S+ --> \S+", rendered("vtt", ready(), one, closed(32_000), ready(), one))
    assert times == ["00:00:00.800 --> 00:00:01.700", "00:00:02.800 --> 00:00:03.700"]


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
