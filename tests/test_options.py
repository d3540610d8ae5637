from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from streaming.dialects.offers import OFFERS
from streaming.dialects.options import (
    NO_EFFECT,
    endpoint_silence,
    from_object,
    from_query,
    hot_words,
    language_of,
    table,
)
from streaming.protocol import ProtocolError, Start


class Inner(Struct):
    depth: Annotated[int, Meta(description="how deep")] = 0


class Wish(Struct, forbid_unknown_fields=True):
    rate: Annotated[int, Meta(ge=1, le=9, description="how fast")] = 1
    loud: Annotated[bool | None, NO_EFFECT] = None
    names: Annotated[list[str] | None, Meta(description="whose")] = None
    inner: Inner | None = None


def test_a_query_is_read_by_the_types_of_the_options() -> None:
    query = [("rate", "3"), ("names", "a"), ("loud", "true"), ("names", "b"), ("rate", "4")]
    assert from_query(Wish, query) == Wish(rate=4, loud=True, names=["a", "b"])


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ([("rat", "3")], "did you mean `rate`?"),
        ([("rate", "fast")], "`rate` of `options` must be a whole number from 1 to 9"),
        ([("rate", "10")], "a whole number from 1 to 9"),
        ([("loud", "very")], "true or false"),
    ],
)
def test_a_wrong_option_is_named(query: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(ProtocolError, match="options") as refusal:
        from_query(Wish, query)
    assert says in str(refusal.value)


def test_json_has_types_of_its_own() -> None:
    assert from_object(Wish, {"rate": 2, "inner": {"depth": 1}}) == Wish(rate=2, inner=Inner(1))
    with pytest.raises(ProtocolError):
        from_object(Wish, {"rate": "2"})


def test_a_table_has_a_row_for_each_option() -> None:
    assert list(table(Wish)) == [
        "| `rate` | a whole number from 1 to 9 | how fast |",
        "| `loud` | true or false, or null | accepted, no effect |",
        "| `names` | a list of these, each a text, or null | whose |",
        "| `inner.depth` | a whole number | how deep |",
    ]


@pytest.mark.parametrize("offer", OFFERS, ids=lambda offer: offer.title)
def test_every_option_of_every_protocol_says_what_it_does(offer: object) -> None:
    for _, kind in getattr(offer, "options"):  # noqa: B009 - mypy knows no fixture's type
        assert list(table(kind))


@given(st.lists(st.text()), st.lists(st.text()))
def test_hot_words_are_such_as_a_session_takes(some: list[str], more: list[str]) -> None:
    from_object(Start, {"hot_words": hot_words(some, None, more)})


@pytest.mark.parametrize(
    ("tag", "code"),
    [("en-US", "en"), ("pt_BR", "pt"), ("DE", "de"), ("multi", None), ("", None), (None, None)],
)
def test_a_language_tag_names_a_language(tag: str | None, code: str | None) -> None:
    assert language_of(tag) == code


def test_silence_is_brought_within_its_bounds() -> None:
    assert [endpoint_silence(ms) for ms in (None, 10, 300.0, 60_000)] == [None, 200, 300, 10_000]
