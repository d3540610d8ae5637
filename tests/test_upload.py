import asyncio
import itertools
from collections.abc import AsyncIterator
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.datastructures import Headers

from daemon.files.upload import LONGEST_FIELD, MOST_FIELDS, UploadError, receive_body, receive_form
from daemon.net.exchange import Exchange

MOST = 10_000
BOUNDARY = "a-boundary"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=9)


def request(*pieces: bytes, kind: str = f"multipart/form-data; boundary={BOUNDARY}") -> Exchange:
    """A request whose body comes in these pieces."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    headers = Headers({"Content-Type": kind})
    made: Any = SimpleNamespace(request=SimpleNamespace(headers=headers), body=body)
    return cast("Exchange", made)


def part(name: str, value: bytes, more: str = "") -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return head.encode() + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()
FILE = part("file", b"sound", '; filename="a.wav"')


async def received(*pieces: bytes, most: int = MOST) -> tuple[list[tuple[str, str]], bytes]:
    upload = await receive_form(request(*pieces), most, "file")
    with upload.file as file:
        data = file.read()
    assert upload.size == len(data)
    return upload.fields, data


@given(
    st.lists(st.tuples(NAMES.filter(lambda n: n != "file"), TEXTS), max_size=4),
    st.binary(max_size=300),
    st.data(),
)
def test_a_form_is_read_however_it_is_cut(
    fields: list[tuple[str, str]], file: bytes, data: st.DataObject
) -> None:
    if f"--{BOUNDARY}".encode() in file:
        return
    parts = [part(name, value.encode()) for name, value in fields]
    parts.insert(data.draw(st.integers(0, len(parts))), part("file", file, '; filename="x"'))
    whole = b"".join(parts) + END
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    edges = [0, *cuts, len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(edges)]
    assert asyncio.run(received(*pieces)) == (fields, file)


@given(st.binary(max_size=300))
def test_no_bytes_do_harm(data: bytes) -> None:
    """A form comes of them, or an UploadError."""
    for body in (data, FILE[:70] + data, FILE + data):
        try:
            asyncio.run(received(body))
        except UploadError as error:
            assert error.status in (400, 413)  # noqa: PT017 - either way is right


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (FILE, "in the middle"),
        (part("a", b"b") + END, "no field 'file'"),
        (FILE + FILE + END, "twice"),
        (part("a", bytes(LONGEST_FIELD + 1)) + FILE + END, "longer than"),
        (part("a", b"") * (MOST_FIELDS + 1) + FILE + END, "too many fields"),
        (part("a", b"", "; x=" + "y" * 9_000) + FILE + END, "no form"),
        (b"nothing", "no form"),
    ],
)
async def test_what_is_wrong_is_named(body: bytes, says: str) -> None:
    with pytest.raises(UploadError, match=says) as raised:
        await received(body)
    assert raised.value.status == HTTPStatus.BAD_REQUEST


async def test_a_file_that_is_too_large_is_given_up_at_once() -> None:
    with pytest.raises(UploadError) as raised:
        await received(part("file", bytes(MOST + 1)) + END)
    assert raised.value.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert await received(part("file", bytes(MOST)) + END) == ([], bytes(MOST))


async def test_another_kind_of_body_is_no_form() -> None:
    with pytest.raises(UploadError, match="multipart/form-data"):
        await receive_form(request(b"{}", kind="application/json"), MOST, "file")


async def test_a_body_may_be_the_file() -> None:
    upload = await receive_body(request(b"ab", b"", b"c"), MOST)
    with upload.file as file:
        assert (file.read(), upload.size, upload.fields) == (b"abc", 3, [])
    with pytest.raises(UploadError):
        await receive_body(request(bytes(MOST + 1)), MOST)
