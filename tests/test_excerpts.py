from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.training.synthesis.excerpts import (
    LONGEST_S,
    SHORTEST_S,
    pack,
    read_excerpts,
    seconds,
    stretches,
)

WORDS = st.text("abcdefgh", min_size=1, max_size=9)
CLAUSES = st.lists(WORDS, min_size=1, max_size=30).map(" ".join)
SENTENCES = st.lists(CLAUSES, min_size=1, max_size=6).map(lambda clauses: ", ".join(clauses) + ".")
STRETCHES = st.lists(SENTENCES, max_size=30)


@settings(deadline=None, max_examples=50)
@given(STRETCHES, st.integers(0, 99))
def test_excerpts_are_the_text_in_order_without_repeats(sentences: list[str], seed: int) -> None:
    """What is left out between two of them is too short for one; no clause here is too long."""
    text = " ".join(sentences)
    at = 0
    for excerpt in pack(sentences, np.random.default_rng(seed)):
        assert SHORTEST_S <= seconds(excerpt) <= LONGEST_S
        found = text.index(excerpt, at)
        assert seconds(text[at:found].strip()) < SHORTEST_S
        at = found + len(excerpt)
    assert seconds(text[at:].strip()) < SHORTEST_S


def test_a_clause_too_long_for_a_clip_is_left_out() -> None:
    before = "He slept all night, and for some of the day."
    after = "and then he woke up early, and went to his work."
    packed = pack([before, "word " * 90 + f"end, {after}"], np.random.default_rng(0))
    assert list(packed) == [before, after]


def test_short_sentences_are_lost_to_nobody() -> None:
    """Where every sentence fits, all but a short rest at the end is read."""
    sentences = [f"This is sentence number {n}." for n in range(200)]
    packed = " ".join(pack(sentences, np.random.default_rng(1)))
    whole = " ".join(sentences)
    assert whole.startswith(packed)
    assert seconds(whole[len(packed) :]) < SHORTEST_S


def test_most_excerpts_are_long_ones() -> None:
    sentences = ["It was a bright cold day, and all the clocks were striking."] * 4000
    lengths = np.array([seconds(each) for each in pack(sentences, np.random.default_rng(2))])
    assert 0.7 < (lengths >= 15).mean() < 0.84


def test_a_sentence_ends_at_its_stop_and_not_after_an_abbreviation() -> None:
    book = 'Mr. J. Smith and Dr. Jones met. "Did they?" he asked. They did! It cost No. 5 dearly.'
    assert list(stretches(book)) == [
        [
            "Mr. J. Smith and Dr. Jones met.",
            '"Did they?" he asked.',
            "They did!",
            "It cost No. 5 dearly.",
        ]
    ]


@pytest.mark.parametrize(
    "heading",
    ["CHAPTER IV.", "Chapter 4: The Storm", "XII", "3.", "THE STORM", "Book the Second", "Act II"],
)
def test_a_heading_parts_stretches_and_is_not_read(heading: str) -> None:
    assert list(stretches(f"He slept.\n{heading}\nHe woke.")) == [["He slept."], ["He woke."]]


@pytest.mark.parametrize("paragraph", ["Stop!", "I saw her.", "'No!'", "Part of me agreed."])
def test_a_short_paragraph_is_no_heading(paragraph: str) -> None:
    assert list(stretches(paragraph)) == [[paragraph]]


def test_paragraphs_may_be_wrapped_and_set_apart_by_blank_lines() -> None:
    book = "He slept\nall night.\n\nHe woke\nearly.\n"
    assert list(stretches(book)) == [["He slept all night.", "He woke early."]]


def test_the_licence_around_a_book_is_not_read() -> None:
    book = (
        "The Project Gutenberg EBook.\n\n*** START OF THE PROJECT GUTENBERG EBOOK 1 ***\n\n"
        "Produced by A. Nobody\n\nHe slept.\n\n*** END OF THE PROJECT GUTENBERG EBOOK 1 ***\n\nTerms."
    )
    assert list(stretches(book)) == [["He slept."]]


def test_what_cannot_be_read_aloud_parts_stretches() -> None:
    """Nothing joins what stood apart: between the neighbours of a lost sentence there is a gap."""
    book = "He slept. Then note {3} came. He woke. He = she. He rose."
    assert list(stretches(book)) == [["He slept."], ["He woke."], ["He rose."]]


def test_print_becomes_plain_text() -> None:
    """Typographic quotes and dashes, emphasis by capitals or underscores; numerals stay."""
    book = "\u201cI \u2018was\u2019 _very_ VERY late\u201d -- said Henry VIII. IT WAS so."
    assert list(stretches(book)) == [["\"I 'was' very very late\"—said Henry VIII.", "It was so."]]


def test_the_same_seed_gives_the_same_excerpts(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("It was a bright cold day in the middle of April. " * 300, encoding="utf-8")
    first, again, other = (read_excerpts([book], seed) for seed in (1, 1, 2))
    assert first == again != other
    assert {excerpt.book for excerpt in first} == {"book.txt"}


def test_an_excerpt_stays_within_its_book(tmp_path: Path) -> None:
    books = []
    for name in ("ape", "bee"):
        books.append(tmp_path / f"{name}.txt")
        books[-1].write_text(f"The {name} was here again today. " * 100, encoding="utf-8")
    for excerpt in read_excerpts(books, 0):
        assert ("ape" in excerpt.text, "bee" in excerpt.text) == (
            excerpt.book == "ape.txt",
            excerpt.book == "bee.txt",
        )


def test_a_book_in_another_encoding_is_named(tmp_path: Path) -> None:
    book = tmp_path / "latin.txt"
    book.write_bytes("Café.".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt is not text in UTF-8"):
        read_excerpts([book], 0)
