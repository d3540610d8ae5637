import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.settings import Settings
from streaming.stable_prefix import StablePrefix
from streaming.text_rules import TextRules, WrittenText, rules_of, written
from tests.support.standin import final, spoken

RULES: dict[str, Any] = {
    "replacements": {
        "gonna": "going to",
        "cap she on": "captiond",
        "New York": "NYC",
        "東京": "Tokio",
    },
    "blocklist": ["damn", "shit*", "bad word"],
    "numbers": "digits",
}


def rules(**changed: Any) -> TextRules:
    found = rules_of(Settings(**(RULES | changed)))
    assert found is not None
    return found


def applied(one: TextRules, text: str, language: str = "en") -> str:
    return written(text, one.edits(text, language))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Gonna see twenty-three people, damn it.", "Going to see 23 people, d*** it."),
        ("We're gonna, CAP  SHE ON!", "We're going to, captiond!"),
        ("new york, I'm damned", "NYC, I'm damned"),
        ("Shitty bad word", "S***** b** ****"),
        ("東京に行く", "Tokioに行く"),
        ("", ""),
    ],
)
def test_words_are_replaced_and_masked(text: str, wanted: str) -> None:
    assert applied(rules(), text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("Damn, it is damn late.", "it is late."), ("Oh damn!", "Oh!"), ("damn", ""), ("a", "a")],
)
def test_words_are_dropped(text: str, wanted: str) -> None:
    assert applied(rules(blocked="drop"), text) == wanted


def test_an_apostrophe_is_one_however_it_is_written() -> None:
    one = rules(replacements={"don\u2019t": "do not"})
    assert applied(one, "I don't, they don\u2019t") == "I do not, they do not"


def test_no_rule_is_no_rules() -> None:
    assert rules_of(Settings()) is None
    assert rules_of(Settings(blocklist=["*", " "], replacements={" ": "x"})) is None
    assert rules_of(Settings(numbers="words")) is not None


@pytest.mark.parametrize("phrase", ["***", "++", "(", "a b*", "'", "\\d", "\u017f", "\u0130"])
def test_any_phrase_is_taken_literally(phrase: str) -> None:
    one = rules(blocklist=[phrase], replacements={phrase: "x"})
    for text in (phrase, phrase.upper(), f"a {phrase} b"):
        applied(one, text)


def test_words_that_may_become_more_are_not_stable() -> None:
    """A phrase or a number that has begun waits; what follows it settles it."""
    one, caption = rules(), WrittenText()
    said = "I have twenty three new york bagels today"

    def upto(word: str) -> tuple[str, str]:
        stable = said.index(word) + len(word)
        text, count = caption.partial(one, said, stable, "en")
        return text, text[:count]

    assert upto("twenty") == ("I have 23 NYC bagels today", "I have")
    assert upto("new")[1] == "I have"
    assert upto("york")[1] == "I have 23 NYC"
    assert upto("bagels")[1] == "I have 23 NYC bagels"


VOCABULARY = [
    *[
        "a",
        "damn,",
        "bad",
        "word",
        "Gonna",
        "new",
        "york.",
        "twenty",
        "three",
        "hundred",
        "and",
        "5",
        "東京",
        "cap",
        "she",
        "on",
    ]
]


@given(
    st.lists(st.lists(st.sampled_from(VOCABULARY), max_size=8), min_size=1, max_size=8),
    st.sampled_from(["mask", "drop"]),
    st.sampled_from(["digits", "words", "as_is"]),
)
def test_what_is_called_stable_stays(said: list[list[str]], blocked: str, numbers: str) -> None:
    """In partials, and in the final of a session that commits, whatever the recogniser says."""
    one = rules(blocked=blocked, numbers=numbers)
    prefix, caption, promised = StablePrefix(), WrittenText(), ""
    heard: list[str] = []
    for words in said:
        heard = [*heard[: len(heard) // 2], *words]
        raw, count = prefix.update(" ".join(heard), 10_000)
        text, stable = caption.partial(one, raw, count, "en")
        assert text.startswith(promised)
        assert stable >= len(promised)
        promised = text[:stable]
    bound = final(prefix.bind(" ".join(heard)))
    committed = caption.final(one, bound, commits=True)
    assert committed.text.startswith(promised)
    assert committed.raw == bound.text
    free = caption.final(one, bound, commits=False)
    assert free.text == applied(one, bound.text)


def test_times_follow_the_words_that_are_written() -> None:
    said = spoken(
        ("Gonna", 0.0, 0.5),
        ("take", 0.5, 0.8),
        ("twenty", 1.0, 1.3),
        ("three,", 1.3, 1.6),
        ("damn", 1.7, 2.0),
        ("it.", 2.0, 2.2),
    )
    message = final("Gonna take twenty three, damn it.", words=said)
    done = WrittenText().final(rules(blocked="drop"), message, commits=False)
    assert done.text == "Going to take 23, it."
    assert done.words is not None
    assert [(word.text, word.start, word.end) for word in done.words] == [
        ("Going", 0.0, 0.25),
        ("to", 0.25, 0.5),
        ("take", 0.5, 0.8),
        ("23,", 1.0, 1.6),
        ("it.", 2.0, 2.2),
    ]


@given(st.lists(st.sampled_from(VOCABULARY), max_size=12), st.sampled_from(["mask", "drop"]))
def test_the_words_are_those_of_the_text(said: list[str], blocked: str) -> None:
    words = spoken(*((word, n / 2, n / 2 + 0.4) for n, word in enumerate(said)))
    message = final(" ".join(said), words=words)
    done = WrittenText().final(rules(blocked=blocked), message, commits=False)
    assert done.words is not None
    assert " ".join(word.text for word in done.words).split() == done.text.split()
    edges = [edge for word in done.words for edge in (word.start, word.end)]
    assert edges == sorted(edges)
    assert not re.search("damn", done.text)
