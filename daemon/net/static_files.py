"""The files of the page, over HTTP: fixed files at fixed paths, read once at start-up.

A request's path selects an entry of a table. It never reaches the file system.
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

# The page loads, runs and contacts this origin alone, no site may frame it, and it may use the microphone.
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
class StaticFile:
    """A file to serve. etag: quoted, as RFC 9110 section 8.8.3 asks."""

    body: bytes
    content_type: str
    etag: str


def read_files() -> dict[str, StaticFile]:
    """Each path with its file: the documents, and everything else under /static/."""
    names = [path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.*")]
    paths = {f"/static/{name}": name for name in names if not name.endswith(".html")} | DOCUMENTS
    return {path: _read(STATIC / name) for path, name in paths.items()}


def _read(path: Path) -> StaticFile:
    body = path.read_bytes()
    return StaticFile(body, TYPES[path.suffix], f'"{sha256(body).hexdigest()[:32]}"')


class Page:
    """All files of the page in memory: about a hundred kilobytes."""

    def __init__(self) -> None:
        self._files = read_files()

    def answer(self, path: str, request: Request) -> Response | None:
        """The response to a plain GET or HEAD of `path`; None if the page has no such file.

        Browsers keep a copy and ask each time whether it is current, so users get a new version at
        their next visit.
        """
        file = self._files.get(path)
        if file is None:
            return None
        headers = {"Date": formatdate(usegmt=True), "Connection": "close", "ETag": file.etag}
        headers |= {"Cache-Control": "no-cache"} | SECURITY
        known = ",".join(request.headers.get_all("If-None-Match"))
        if file.etag in (etag.strip().removeprefix("W/") for etag in known.split(",")):
            status = HTTPStatus.NOT_MODIFIED
            return Response(status.value, status.phrase, Headers(headers))
        headers |= {"Content-Type": file.content_type, "Content-Length": str(len(file.body))}
        return Response(HTTPStatus.OK.value, HTTPStatus.OK.phrase, Headers(headers), file.body)
