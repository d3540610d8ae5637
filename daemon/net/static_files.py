"""The page that anyone can open, over HTTP: fixed files at fixed paths, read once.

A path names a row of the table or nothing: what a client writes there never reaches the file system.
What the page does is told in daemon/static/, file by file.
"""

from dataclasses import dataclass
from email.utils import formatdate
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

STATIC = Path(__file__).parent.parent / "static"

DOCUMENTS = {"/": "index.html", "/overlay": "overlay.html"}
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}

# Nothing from elsewhere is loaded, run, framed or told; only this page may use the microphone.
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class File:
    """What is served at one path. etag: quoted, as in RFC 9110, 8.8.3."""

    body: bytes
    kind: str
    etag: str


def table() -> dict[str, File]:
    """Every path and its file: the documents, and all else under /static/."""
    files = {f"/static/{path.name}": path for path in STATIC.iterdir() if path.suffix != ".html"}
    files |= {path: STATIC / name for path, name in DOCUMENTS.items()}
    return {path: _read(file) for path, file in files.items()}


def _read(path: Path) -> File:
    body = path.read_bytes()
    return File(body, TYPES[path.suffix], f'"{sha256(body).hexdigest()[:32]}"')


class Page:
    """The files of the page, held in memory: about a hundred kilobytes."""

    def __init__(self) -> None:
        self._files = table()

    def answer(self, path: str, request: Request) -> Response | None:
        """The response to a plain GET or HEAD of `path`; None where nothing of the page is there.

        Browsers keep a copy and ask each time whether it is still good, so that a new version is
        there at the next visit.
        """
        file = self._files.get(path)
        if file is None:
            return None
        headers = {"Date": formatdate(usegmt=True), "Connection": "close", "ETag": file.etag}
        headers |= {"Cache-Control": "no-cache"} | SECURITY
        known = ",".join(request.headers.get_all("If-None-Match"))
        if file.etag in (one.strip().removeprefix("W/") for one in known.split(",")):
            status = HTTPStatus.NOT_MODIFIED
            return Response(status.value, status.phrase, Headers(headers))
        headers |= {"Content-Type": file.kind, "Content-Length": str(len(file.body))}
        return Response(HTTPStatus.OK.value, HTTPStatus.OK.phrase, Headers(headers), file.body)
