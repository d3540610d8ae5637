import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.numbers import as_digits, as_words, unfinished_from
from streaming.text_rules import written


@pytest.mark.parametrize(
    ("text", "language", "wanted"),
    [
        ("I have twenty-three apples, Ma'am.", "en", "I have 23 apples, Ma'am."),
        ("Two hundred and five, on the twenty-first.", "en", "205, on the 21st."),
        ("Five point five percent", "en", "5.5 percent"),
        ("one of them is the second", "en", "one of them is the second"),
        ("nine nine, nine", "en", "9 9, 9"),
        ("zwölf und einundzwanzig", "de", "12 und 21"),
        ("vingt et un", "fr", "21"),
        ("二十三", "ja", "二十三"),
        ("twenty", "xx", "twenty"),
    ],
)
def test_number_words_become_digits(text: str, language: str, wanted: str) -> None:
    assert written(text, list(as_digits(text, language))) == wanted


@pytest.mark.parametrize(
    ("text", "language", "wanted"),
    [
        ("23 apples. 5 pears, or 5.", "en", "Twenty-three apples. Five pears, or five."),
        ("the 21st, in 1984", "en", "the twenty-first, in nineteen eighty-four"),
        ("It is 1,200 or 3.5%.", "en", "It is one thousand, two hundred or three point five%."),
        ("for $22.08 or $5", "en", "for twenty-two dollars, eight cents or five dollars"),
        ("at 5:20, 415-555-2671, B12, 1/2", "en", "at 5:20, 415-555-2671, B12, 1/2"),
        ("es sind 21 Leute", "de", "es sind einundzwanzig Leute"),
        ("il est 21st", "fr", "il est 21st"),
        ("21", "xx", "21"),
        ("007 and 12345678901234567890", "en", "seven and 12345678901234567890"),
    ],
)
def test_digits_become_words(text: str, language: str, wanted: str) -> None:
    assert written(text, list(as_words(text, language)))[1:] == wanted[1:]
    assert written(text, list(as_words(text, language))).casefold() == wanted.casefold()


@pytest.mark.parametrize(
    ("text", "open_part"),
    [
        ("I have twenty", "twenty"),
        ("I have two hundred and", "two hundred and"),
        ("I have twenty of them", ""),
        ("I have none", ""),
        ("five.", "five."),
    ],
)
def test_a_number_at_the_end_may_go_on(text: str, open_part: str) -> None:
    assert text[unfinished_from(text, "en") :] == open_part


SPOKEN = st.lists(
    st.sampled_from(
        [
            "twenty",
            "three",
            "and",
            "point",
            "5",
            "$7.50",
            "1,000",
            "2024",
            "first",
            "a",
            ".",
            ",",
            "-",
        ]
    )
)


@given(SPOKEN.map(" ".join) | st.text(max_size=60), st.sampled_from(["en", "de", "ja", "xx"]))
def test_edits_are_apart_and_in_order(text: str, language: str) -> None:
    for edits in (list(as_digits(text, language)), list(as_words(text, language))):
        edges = [edge for edit in edits for edge in (edit.start, edit.stop)]
        assert edges == sorted(edges)
        assert all(0 <= edit.start < edit.stop <= len(text) for edit in edits)
    assert 0 <= unfinished_from(text, language) <= len(text)
