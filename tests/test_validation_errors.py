import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.protocol import (
    ClientMessage,
    HotWords,
    ProtocolError,
    Replacements,
    Resume,
    Start,
    decode_client,
)
from streaming.validation_errors import what_is_wrong

KINDS = get_args(ClientMessage)


class Wish(msgspec.Struct, tag="wish", forbid_unknown_fields=True):
    """A message with a field of each kind."""

    number: int
    names: HotWords | None = None
    swaps: Replacements | None = None
    loud: bool = False


def complaint(text: str) -> str:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Wish)
    return what_is_wrong([Wish], text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"type": 1}', "a message is an object whose `type` is one of: wish"),
        ("[]", "a message is an object whose `type` is one of: wish"),
        ('{"type": "wash"}', "unknown type 'wash'"),
        ('{"type": "wish"}', "`wish` needs the field `number`"),
        ('{"type": "wish", "numbr": 1}', "did you mean `number`?"),
        ('{"type": "wish", "number": 0.5}', "`number` of `wish` must be a whole number"),
        ('{"type": "wish", "number": 1, "loud": 1}', "must be true or false"),
        (
            '{"type": "wish", "number": 1, "names": [""]}',
            "a list of 0 to 50 of these, each a text of 1 to 50 characters, or null",
        ),
        (
            '{"type": "wish", "number": 1, "swaps": {"": "x"}}',
            "an object of 0 to 500 of these, each a text of 1 to 100 characters; and for it a text of",
        ),
    ],
)
def test_one_sentence_says_what_is_wrong(text: str, said: str) -> None:
    """The validator's own wording is for those who wrote it."""
    assert said in complaint(text)


@given(text=st.text(max_size=60))
def test_nothing_that_is_sent_breaks_it(text: str) -> None:
    assert what_is_wrong(KINDS, text)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(
    message=st.fixed_dictionaries(
        {"type": st.sampled_from([kind.__struct_config__.tag for kind in KINDS])},
        optional=dict.fromkeys((*Start.__struct_fields__, *Resume.__struct_fields__), VALUES),
    )
)
def test_what_the_decoder_refuses_is_named(message: dict[str, Any]) -> None:
    """The decoder and the search for what is wrong judge alike."""
    text = json.dumps(message)
    refused = None
    try:
        decode_client(text)
    except ProtocolError as error:
        refused = str(error)
    named = what_is_wrong(KINDS, text)
    assert refused in (None, named)
    assert ("not as documented" in named) is (refused is None)
