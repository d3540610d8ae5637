"""Plain HTTP on the daemon's port: a table of paths with their replies.

The websocket library reads the request and writes the response; nothing here waits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """A response: status, type, body. headers: further ones, beside type, length and date."""

    status: HTTPStatus
    body: str | bytes
    kind: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self, socket: ServerConnection) -> Response:
        """The response for the websocket library."""
        response = socket.respond(self.status, "")
        response.body = self.body.encode() if isinstance(self.body, str) else self.body
        fields = {
            "Content-Type": self.kind,
            "Content-Length": str(len(response.body)),
            "X-Content-Type-Options": "nosniff",
            **self.headers,
        }
        for name, value in fields.items():
            if name in response.headers:  # assignment adds to what is there
                del response.headers[name]
            response.headers[name] = value
        return response


Answer = Callable[[Request], Reply]


class Router:
    """Replies to requests that are no websocket, by path: `routes`."""

    def __init__(self, routes: Mapping[str, Answer]) -> None:
        self.routes = dict(routes)

    def answer(self, request: Request) -> Reply:
        """The reply; 404 for a path that is not in the table."""
        route = self.routes.get(path(request))
        if route is not None:
            return route(request)
        known = ", ".join(sorted(self.routes))
        return Reply(HTTPStatus.NOT_FOUND, f"nothing is here; known paths: {known}\n")


def path(request: Request) -> str:
    """The path of a request, without its query; empty for an invalid URL."""
    try:
        return urlsplit(request.path).path
    except ValueError:
        return ""


def wants_websocket(request: Request) -> bool:
    """Whether the request asks to become a websocket, and nothing else."""
    return [value.lower() for value in request.headers.get_all("Upgrade")] == ["websocket"]
