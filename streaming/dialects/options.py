"""Options of foreign protocols: read from URLs and JSON, refused in words, and shown in a table.

The options of a dialect are the fields of a Struct. The description of each says what it does; NO_EFFECT
stands at those that are taken and change nothing, for captiond has no such thing.
"""

from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from streaming.dialects.dialect import Query
from streaming.protocol import HotWords, ProtocolError
from streaming.validation_errors import accepted, wrong_field

NO_EFFECT = Meta(description="accepted, no effect")
MOST_HOT_WORDS, LONGEST_HOT_WORD = 50, 50  # as `start` takes them

T = TypeVar("T", bound=Struct)


def from_query(kind: type[T], query: Query) -> T:
    """The options in a URL; of a name that comes twice the last counts, but for lists.

    Raises ProtocolError("bad_message") that names the option which is wrong.
    """
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in query:
        if list in {get_origin(one) for one in _variants(hints.get(name))}:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return from_object(kind, values, strict=False)


def from_object(kind: type[T], values: dict[str, Any], *, strict: bool = True) -> T:
    """The options in a JSON object. Raises ProtocolError as `from_query` does."""
    try:
        return msgspec.convert(values, kind, strict=strict)
    except msgspec.ValidationError:
        text = wrong_field("options", kind, values, strict=strict)
        raise ProtocolError("bad_message", text) from None


def hot_words(*lists: list[str] | None) -> HotWords | None:
    """The first of them, as many and as long as a session takes."""
    words = [word.strip()[:LONGEST_HOT_WORD] for some in lists for word in some or ()]
    return [word for word in words if word][:MOST_HOT_WORDS] or None


def table(kind: type[Struct], prefix: str = "") -> Iterator[str]:
    """The options as rows of Markdown: name, what is taken, what it does; nested ones by their path."""
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        name, hint = f"{prefix}{field.encode_name}", hints[field.name]
        nested = [
            one for one in _variants(hint) if isinstance(one, type) and issubclass(one, Struct)
        ]
        about = next((meta.description for meta in _metas(hint) if meta.description), None)
        if not nested:
            assert about is not None, f"{kind.__name__}.{field.name} has no description"
        if about is not None:
            taken = "an object" if nested else accepted(_bare(hint))
            yield f"| `{name}` | {taken} | {about} |"
        for one in nested:
            yield from table(one, f"{name}.")


def _variants(hint: Any) -> list[Any]:
    """The types that `hint` allows, without annotations."""
    bare = _bare(hint)
    if get_origin(bare) in (None, list) or type(bare).__name__ == "_LiteralGenericAlias":
        return [bare]
    return [_bare(one) for one in get_args(bare)]


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _metas(hint: Any) -> list[Meta]:
    return [one for one in get_args(hint)[1:] if isinstance(one, Meta)]


def is_optional(hint: Any) -> bool:
    """Whether null is taken."""
    return NoneType in _variants(hint)
