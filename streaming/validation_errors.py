"""Errors of validation: what is wrong with a refused message, in words. Pure, needs msgspec alone."""

import difflib
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, UnsetType


def what_is_wrong(messages: Iterable[type[Struct]], text: str) -> str:
    """One sentence for people: the field that is wrong and what it may be, or what is missing.

    messages: those that `text`, which was refused, may be.
    """
    kinds: dict[Any, type[Struct]] = {kind.__struct_config__.tag: kind for kind in messages}
    try:
        message = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):  # broken further on than it was read before
        message = None
    name = message.get("type") if isinstance(message, dict) else None
    if not isinstance(name, str) or name not in kinds:
        unknown_type = f"unknown type {name!r}: " if isinstance(name, str) else ""
        return f"{unknown_type}a message is an object whose `type` is one of: {', '.join(kinds)}"
    return wrong_field(name, kinds[name], message)


def wrong_field(
    name: str, kind: type[Struct], message: dict[str, Any], *, strict: bool = True
) -> str:
    """One sentence on the first field of `message` that is not as `kind`, called `name`, has it.

    strict: JSON has types of its own, the query of a URL has not.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    known = f"the fields of `{name}`: {', '.join(fields) or 'none'}"
    for key in message if kind.__struct_config__.forbid_unknown_fields else ():
        if key not in fields and key != "type":
            close = difflib.get_close_matches(key[:40], fields, n=1)  # a name may be long
            guess = f" (did you mean `{close[0]}`?)" if close else ""
            return f"`{name}` has no field `{key}`{guess}; {known}"
    for key, field in fields.items():
        if key not in message:
            if field.required:
                return f"`{name}` needs the field `{key}`; {known}"
            continue
        try:
            msgspec.convert(message[key], field.type, strict=strict)
        except msgspec.ValidationError:
            variants = get_args(field.type) or (field.type,)
            inner = [one for one in variants if isinstance(one, type) and issubclass(one, Struct)]
            if inner and isinstance(message[key], dict):
                return wrong_field(key, inner[0], message[key], strict=strict)
            return f"`{key}` of `{name}` must be {accepted(field.type)}"
    return f"`{name}` is not as documented; {known}"


def accepted(kind: Any) -> str:
    """A type in words, its bounds included."""
    options, bounds = get_args(kind), Meta()
    if get_origin(kind) is Annotated:
        kind, bounds = options[0], next(one for one in options[1:] if isinstance(one, Meta))
        options = get_args(kind)
    origin = get_origin(kind) or kind
    if origin is Literal:
        return "one of " + ", ".join(map(str, options))
    if origin in (Union, UnionType):
        return ", or ".join(accepted(one) for one in options if one is not UnsetType)
    if origin in (int, float):
        number = "a whole number" if origin is int else "a number"
        upper = f" to {bounds.le}" if bounds.le is not None else " on"
        return number if bounds.ge is None else f"{number} from {bounds.ge}{upper}"
    if origin is str:
        least = f"{bounds.min_length} to" if bounds.min_length else "at most"
        return (
            f"a text of {least} {bounds.max_length} characters" if bounds.max_length else "a text"
        )
    if origin is list or (origin is dict and bounds.max_length):
        what = "a list" if origin is list else "an object"
        entries = "; and for it ".join(map(accepted, options))
        count = f" of {bounds.min_length or 0} to {bounds.max_length}" if bounds.max_length else ""
        return f"{what}{count} of these, each {entries}"
    return {bool: "true or false", NoneType: "null"}.get(origin, "as documented")
