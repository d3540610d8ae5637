import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.captions import StablePrefix


def stable(*hypotheses: str) -> str:
    """The stable characters after these hypotheses."""
    caption = StablePrefix()
    text, count = "", 0
    for hypothesis in hypotheses:
        text, count = caption.update(hypothesis)
    return text[:count]


def test_a_first_hypothesis_is_shown_with_nothing_stable() -> None:
    assert StablePrefix().update("hello world") == ("hello world", 0)


@pytest.mark.parametrize(
    ("hypotheses", "expected"),
    [
        (("the cat", "the cat sat"), "the cat"),
        (("the cat", "the dog sat"), "the"),
        (("the cat", "a cat"), ""),
        (("the cat", "the category is"), "the"),  # words, not characters
        (("The cat", "the cat"), ""),  # case counts
        (("yes, I", "yes I"), ""),  # so does punctuation
        (("yes, I do", "yes, I did"), "yes, I"),
        (("the cat.", "the cat."), "the cat"),  # but the last word's is not promised
        (("...", "..."), ""),
        (("", ""), ""),
        (("今日は晴れ", "今日は雨です"), "今日は"),  # a character is a word
        (("a b", "a b c", "a b d"), "a b"),
        (("a b c", "a b c", "a b"), "a b c"),  # a shorter one contradicts: nothing is taken back
    ],
)
def test_what_two_successive_hypotheses_agree_on_is_stable(
    hypotheses: tuple[str, ...], expected: str
) -> None:
    assert stable(*hypotheses) == expected


def test_a_full_stop_may_give_way_to_the_next_word() -> None:
    caption = StablePrefix()
    caption.update("it rains.")
    caption.update("it rains.")
    assert caption.update("it rains, often") == ("it rains, often", len("it rains"))


def test_a_contradiction_is_not_shown_until_a_hypothesis_agrees_again() -> None:
    caption = StablePrefix()
    caption.update("one two")
    shown = caption.update("one two three")
    assert caption.update("won too") == shown
    assert caption.update("won too three four") == shown
    assert caption.update("one two three four") == ("one two three four", len("one two"))


def test_a_stable_word_that_grows_is_a_contradiction() -> None:
    caption = StablePrefix()
    caption.update("the cat")
    caption.update("the cat")
    assert caption.update("the category") == ("the cat", len("the cat"))


WORDS = st.lists(st.sampled_from(["a", "ab", "b.", "c,", "本", "日", "…", "A"]), max_size=6)
TEXTS = WORDS.map(" ".join) | WORDS.map("".join) | st.text(max_size=8)


@given(st.lists(TEXTS, max_size=12))
def test_stable_characters_never_change_and_never_get_fewer(hypotheses: list[str]) -> None:
    caption = StablePrefix()
    promised = ""
    for hypothesis in hypotheses:
        text, count = caption.update(hypothesis)
        assert 0 <= count <= len(text)
        assert text.startswith(promised)
        assert count >= len(promised)
        promised = text[:count]


@given(TEXTS)
def test_a_hypothesis_heard_twice_is_stable_but_for_closing_marks(text: str) -> None:
    caption = StablePrefix()
    caption.update(text)
    shown, count = caption.update(text)
    assert shown == text
    assert not any(character.isalnum() for character in text[count:])
