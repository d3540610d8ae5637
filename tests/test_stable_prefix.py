import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.stable_prefix import StablePrefix

SURE = 1_000  # more characters than any text here has


def heard(*hypotheses: str) -> tuple[StablePrefix, str, int]:
    """A caption after these, all of them certain, and what is shown."""
    caption = StablePrefix()
    text, count = "", 0
    for hypothesis in hypotheses:
        text, count = caption.update(hypothesis, SURE)
    return caption, text, count


def stable(*hypotheses: str) -> str:
    _, text, count = heard(*hypotheses)
    return text[:count]


@pytest.mark.parametrize(
    ("hypotheses", "expected"),
    [
        (("the cat sat",), ""),
        (("the cat sat", "the cat sat down"), "the cat sat"),
        (("the cat sat", "the cat sat"), "the cat"),  # the last word may have been cut off
        (("the cat", "the dog sat"), "the"),
        (("the cat", "a cat"), ""),
        (("the cat", "the category is"), "the"),  # words, not characters
        (("The cat sat", "the cat, sat."), "the cat"),  # letters and digits count alone
        (("it rains. The", "it rains. The sun"), "it rains. The"),
        (("it rains.", "it rains, often"), "it rains"),  # the mark behind it is not promised
        (("", ""), ""),
        (("今日は晴", "今日は雨で"), "今日は"),
        (("a b c", "a b c d", "a b c e"), "a b c"),
        (("a b c d", "a b c d", "a b"), "a b c"),  # a shorter one takes nothing back
    ],
)
def test_what_two_hypotheses_agree_on_is_stable(hypotheses: tuple[str, ...], expected: str) -> None:
    assert stable(*hypotheses) == expected


@pytest.mark.parametrize(
    ("hypotheses", "shown"),
    [
        (("the cat sat.",), "the cat"),  # the last word waits for another behind it
        (("the cat sat", "the cat sat"), "the cat sat"),  # or until it is heard twice
        (("it rains, often", "it rains, often"), "it rains, often"),
        (("it rains.", "it rains."), "it rains"),  # a full stop closes every partial
        (("you",), ""),
    ],
)
def test_what_is_likely_to_change_is_not_shown(hypotheses: tuple[str, ...], shown: str) -> None:
    assert heard(*hypotheses)[1] == shown


def test_what_its_maker_doubts_is_shown_once_it_is_heard_twice() -> None:
    caption = StablePrefix()
    assert caption.update("the cat sat on a mat", len("the cat")) == ("the cat", 0)
    assert caption.update("the cat sat on a rug", len("the cat"))[0] == "the cat sat on a"


def test_after_silence_all_is_shown() -> None:
    caption, _, _ = heard("the cat", "the cat sat")
    assert caption.update("the cat sat down.", 0, whole=True)[0] == "the cat sat down."


def test_a_word_settled_too_soon_holds_up_none_that_follow() -> None:
    """The stable prefix stays; what the hypothesis says behind it is shown."""
    caption, text, _ = heard("desire and they", "desire and they say", "desire and they say in")
    assert caption.stable == "desire and they say"
    text, count = caption.update("there's iron they say in all our blood", SURE)
    assert text == "desire and they say in all our"
    assert text[:count] == "desire and they say in"


def test_punctuation_between_sentences_is_kept() -> None:
    """Also where the word before it was settled without it."""
    caption, _, _ = heard("it rains", "it rains", "it rains. We", "it rains. We stay")
    assert caption.stable == "it rains. We"


def test_a_text_is_bound_to_begin_with_what_was_promised() -> None:
    caption, _, _ = heard("desire and they say", "desire and they say in")
    assert caption.bind("there's iron, they say, in all.") == "desire and they say, in all."
    assert caption.bind("desire and they say it") == "desire and they say it"
    assert caption.bind("") == "desire and they say"
    assert StablePrefix().bind("anything.") == "anything."


WORDS = st.lists(st.sampled_from(["a", "ab", "b.", "c,", "本", "日", "…", "A"]), max_size=6)
TEXTS = WORDS.map(" ".join) | WORDS.map("".join) | st.text(max_size=8)
HYPOTHESES = st.lists(st.tuples(TEXTS, st.integers(0, 12), st.booleans()), max_size=12)


@given(HYPOTHESES, TEXTS)
def test_stable_characters_never_change_and_never_get_fewer(
    hypotheses: list[tuple[str, int, bool]], final: str
) -> None:
    caption = StablePrefix()
    promised = ""
    for hypothesis, certain, whole in hypotheses:
        text, count = caption.update(hypothesis, certain, whole=whole)
        assert 0 <= count <= len(text)
        assert text.startswith(promised)
        assert count >= len(promised)
        promised = text[:count]
        assert caption.stable == promised
    assert caption.bind(final).startswith(promised)


@given(st.lists(st.sampled_from(["one", "two", "three", "four"]), min_size=1, max_size=12))
def test_what_only_grows_is_never_taken_back(words: list[str]) -> None:
    caption, shown = StablePrefix(), ""
    for count in range(1, len(words) + 1):
        text, _ = caption.update(" ".join(words[:count]), SURE)
        assert text.startswith(shown)
        shown = text
