"""Options of foreign protocols: read from URLs and JSON, refused in words, and shown in a table.

The options of a dialect are the fields of a Struct. The description of each says what it does; NO_EFFECT
stands at those that are taken and change nothing, for captiond has no such thing.
"""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from streaming.dialects.dialect import Query
from streaming.protocol import HotWords, ProtocolError
from streaming.settings import RANGES
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


def endpoint_silence(milliseconds: float | None) -> int | None:
    """As near to it as a session can have it."""
    if milliseconds is None:
        return None
    least, most = RANGES["endpoint_silence_ms"]
    return int(min(max(milliseconds, least), most))


def language_of(tag: str | None) -> str | None:
    """Whisper's code in a language tag such as en-US; None where any is meant."""
    code = (tag or "").replace("_", "-").partition("-")[0].lower()
    return code if code not in ("", "multi", "auto") else None


def table(kind: type[Struct], prefix: str = "") -> Iterator[str]:
    """The options as rows of Markdown: name, what is taken, what it does; nested ones by their path."""
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        name, hint = f"{prefix}{field.encode_name}", hints[field.name]
        nested = [
            one for one in _variants(hint) if isinstance(one, type) and issubclass(one, Struct)
        ]
        about = [meta.description for meta in _metas(hint) if meta.description]
        assert about or nested, f"{kind.__name__}.{field.name} has no description"
        if about:
            taken = ", or ".join(["an object", *["null"] * (NoneType in _variants(hint))])
            yield f"| `{name}` | {accepted(hint) if not nested else taken} | {about[-1]} |"
        for one in nested:
            yield from table(one, f"{name}.")


def _variants(hint: Any) -> list[Any]:
    """The types that `hint` allows, without annotations."""
    bare = _bare(hint)
    if get_origin(bare) not in (Union, UnionType):
        return [bare]
    return [variant for one in get_args(bare) for variant in _variants(one)]


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _metas(hint: Any) -> list[Meta]:
    """All that is noted of `hint` and of what it allows."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        return _metas(inner) + [note for note in notes if isinstance(note, Meta)]
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    return [meta for part in parts for meta in _metas(part)]
