"""What is wrong with a message that was refused, in words for people. Pure, and needs msgspec alone."""

import difflib
import re
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct


class _Tagged(Struct):
    """Any message, as far as its type."""

    type: str


def what_is_wrong(accepted: Iterable[type[Struct]], text: str, complaint: str) -> str:
    """One sentence for people: the field that is wrong and what it may be, or what is missing.

    accepted: the messages that `text` may be. complaint: msgspec's own, of `text`.
    """
    kinds: dict[Any, Any] = {kind.__struct_config__.tag: kind for kind in accepted}
    try:
        name = msgspec.json.decode(text, type=_Tagged).type
    except (msgspec.DecodeError, RecursionError):  # no object, no type, or broken further on
        name = None
    if name not in kinds:
        unknown_type = "" if name is None else f"unknown type {name!r}: "
        return f"{unknown_type}a message is an object whose `type` is one of: {', '.join(kinds)}"
    fields = {field.name: field for field in msgspec.structs.fields(kinds[name])}
    known = f"the fields of `{name}`: {', '.join(fields) or 'none'}"
    if unknown := re.search(r"unknown field `(.*)`", complaint, re.DOTALL):
        close = difflib.get_close_matches(unknown[1][:40], fields, n=1)  # a name may be long
        guess = f" (did you mean `{close[0]}`?)" if close else ""
        return f"`{name}` has no field `{unknown[1]}`{guess}; {known}"
    if missing := re.search(r"missing required field `(\w+)`", complaint):
        return f"`{name}` needs the field `{missing[1]}`; {known}"
    if (wrong := re.search(r"at `\$\.(\w+)", complaint)) and wrong[1] in fields:
        return f"`{wrong[1]}` of `{name}` must be {_accepted(fields[wrong[1]].type)}"
    return f"{complaint}; {known}"


def _accepted(kind: Any) -> str:
    """A type in words, its bounds included."""
    options, bounds = get_args(kind), Meta()
    if get_origin(kind) is Annotated:
        kind, bounds = options[0], next(one for one in options[1:] if isinstance(one, Meta))
        options = get_args(kind)
    origin = get_origin(kind) or kind
    if origin is Literal:
        return "one of " + ", ".join(options)
    if origin in (Union, UnionType):
        return ", or ".join(map(_accepted, options))
    if origin in (int, float):
        number = "a whole number" if origin is int else "a number"
        upper = f" to {bounds.le}" if bounds.le is not None else " on"
        return number if bounds.ge is None else f"{number} from {bounds.ge}{upper}"
    if origin is str:
        least = f"{bounds.min_length} to" if bounds.min_length else "at most"
        return (
            f"a text of {least} {bounds.max_length} characters" if bounds.max_length else "a text"
        )
    if origin is list:
        return f"a list of {bounds.min_length or 0} to {bounds.max_length} of these, each {_accepted(options[0])}"
    return {bool: "true or false", NoneType: "null"}.get(origin, "as documented")
