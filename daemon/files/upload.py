"""The file in a request's body, streamed to disk: the body itself, or a part of multipart/form-data (RFC 7578)."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from daemon.net.exchange import Exchange

LASTING = Path("/var/tmp")  # noqa: S108 - files there have no names; /tmp is memory on many machines
AT_ONCE = 2**20  # bytes that are written to the disk together
MOST_FIELDS = 100
LONGEST_FIELD = 2**14  # bytes


class UploadError(Exception):
    """The body is not what it should be; `status` and the text say why."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Upload:
    """What came: the fields of the form, in order, and the file, at its beginning; `size` in bytes."""

    fields: list[tuple[str, str]]
    file: IO[bytes]
    size: int


class Store:
    """A file without a name on the disk, of `most` bytes at most; what is written waits in memory first."""

    def __init__(self, most: int) -> None:
        self.file = tempfile.TemporaryFile(  # noqa: SIM115 - whoever gets the upload closes it
            dir=LASTING if LASTING.is_dir() else None, buffering=0
        )
        self.size = 0
        self._most = most
        self._waiting = bytearray()

    def put(self, data: bytes) -> None:
        """More of the file. Raises UploadError for more than it may have."""
        self.size += len(data)
        if self.size > self._most:
            raise too_large(self._most)
        self._waiting += data

    async def write(self, *, all_of_it: bool = False) -> None:
        """Bring to the disk what has come together."""
        if len(self._waiting) >= AT_ONCE or (all_of_it and self._waiting):
            data, self._waiting = bytes(self._waiting), bytearray()
            await asyncio.to_thread(_write_all, self.file, data)
        if all_of_it:
            self.file.seek(0)


def _write_all(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def too_large(most: int) -> UploadError:
    """For a file of more than `most` bytes."""
    return UploadError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the file is larger than the {most} bytes that are taken",
    )


async def receive_body(exchange: Exchange, most: int) -> Upload:
    """The body is the file. Raises UploadError; close the file in the end."""
    return await _received(exchange, most, lambda store: store.put, list)


async def receive_form(exchange: Exchange, most: int, name: str) -> Upload:
    """The body is a form, in which `name` is the file. Raises UploadError; close the file in the end."""
    kind, options = parse_options_header(exchange.request.headers.get("Content-Type"))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise UploadError(
            HTTPStatus.BAD_REQUEST, "the body must be multipart/form-data, with a boundary"
        )
    form: Form | None = None

    def begin(store: Store) -> Callable[[bytes], None]:
        nonlocal form
        form = Form(boundary, name, store)
        return form.take

    def end() -> list[tuple[str, str]]:
        assert form is not None
        return form.end()

    return await _received(exchange, most, begin, end)


async def _received(
    exchange: Exchange,
    most: int,
    begin: Callable[[Store], Callable[[bytes], None]],
    end: Callable[[], list[tuple[str, str]]],
) -> Upload:
    if _announced(exchange) > most + MOST_FIELDS * LONGEST_FIELD:
        raise too_large(most)
    store = Store(most)
    try:
        take = begin(store)
        async for chunk in exchange.body():
            take(chunk)
            await store.write()
        fields = end()
        await store.write(all_of_it=True)
    except OSError as error:
        store.file.close()
        raise UploadError(
            HTTPStatus.INSUFFICIENT_STORAGE, f"the file cannot be kept: {error.strerror}"
        ) from None
    except BaseException:
        store.file.close()
        raise
    return Upload(fields, store.file, store.size)


def _announced(exchange: Exchange) -> int:
    """The body's length as its head says; 0 where it does not."""
    lengths = exchange.request.headers.get_all("Content-Length")
    return int(lengths[0]) if lengths and lengths[0].isascii() and lengths[0].isdigit() else 0


class Form:
    """The parts of a form as they come: the file goes into the store, short texts into `fields`."""

    def __init__(self, boundary: bytes, file: str, store: Store) -> None:
        self._file = file
        self._store = store
        self._fields: list[tuple[str, str]] = []
        self._found = self._over = False
        self._headers: dict[bytes, bytes] = {}
        self._header, self._header_value = b"", b""
        self._name: str | None = None
        self._text = bytearray()
        callbacks: Any = {
            "on_part_begin": self._begin_part,
            "on_header_field": self._more_name,
            "on_header_value": self._more_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }
        try:
            self._parser = MultipartParser(boundary, callbacks)
        except FormParserError as error:
            raise _malformed(error) from None

    def take(self, data: bytes) -> None:
        """More of the body. Raises UploadError for what is no form, or has too many or too long fields."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _malformed(error) from None

    def end(self) -> list[tuple[str, str]]:
        """The fields, now that the body is over. Raises UploadError where it is not complete."""
        if not self._over:
            raise UploadError(HTTPStatus.BAD_REQUEST, "the form ends in the middle")
        if not self._found:
            raise UploadError(HTTPStatus.BAD_REQUEST, f"the form has no field {self._file!r}")
        return self._fields

    def _begin_part(self) -> None:
        self._headers = {}
        self._text = bytearray()

    def _more_name(self, data: bytes, start: int, stop: int) -> None:
        self._header += data[start:stop]

    def _more_value(self, data: bytes, start: int, stop: int) -> None:
        self._header_value += data[start:stop]

    def _end_header(self) -> None:
        self._headers[self._header.lower()] = self._header_value
        self._header, self._header_value = b"", b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        self._name = name
        if name == self._file:
            if self._found:
                raise UploadError(HTTPStatus.BAD_REQUEST, f"the form has {name!r} twice")
            self._found = True
        elif len(self._fields) >= MOST_FIELDS:
            raise UploadError(HTTPStatus.BAD_REQUEST, "the form has too many fields")

    def _data(self, data: bytes, start: int, stop: int) -> None:
        if self._name == self._file:
            self._store.put(data[start:stop])
            return
        self._text += data[start:stop]
        if len(self._text) > LONGEST_FIELD:
            text = f"the field {self._name!r} is longer than {LONGEST_FIELD} bytes"
            raise UploadError(HTTPStatus.BAD_REQUEST, text)

    def _end_part(self) -> None:
        if self._name != self._file:
            assert self._name is not None
            self._fields.append((self._name, self._text.decode("utf-8", "replace")))
        self._name = None

    def _end(self) -> None:
        self._over = True


def _malformed(error: FormParserError) -> UploadError:
    return UploadError(HTTPStatus.BAD_REQUEST, f"the body is no form: {error}")
