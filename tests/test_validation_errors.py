from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.protocol import ClientMessage, HotWords
from streaming.validation_errors import what_is_wrong

KINDS = get_args(ClientMessage)


class Wish(msgspec.Struct, tag="wish", forbid_unknown_fields=True):
    """A message with a field of each kind."""

    number: int
    names: HotWords | None = None
    loud: bool = False


def complaint(text: str) -> str:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(text, type=Wish)
    return what_is_wrong([Wish], text, str(caught.value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
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
    ],
)
def test_one_sentence_says_what_is_wrong(text: str, said: str) -> None:
    """The validator's own wording is for those who wrote it."""
    assert said in complaint(text)


@given(text=st.text(max_size=60), complaint=st.text(max_size=60))
def test_nothing_that_is_sent_breaks_it(text: str, complaint: str) -> None:
    assert what_is_wrong(KINDS, text, complaint)
