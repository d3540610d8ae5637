"""What the daemon answers over HTTP: the page, probes, metrics, and who may become a websocket."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from daemon.monitoring.health import Health
from daemon.monitoring.metrics import CONTENT_TYPE, Metrics
from daemon.net.http import Reply, Router, path, wants_websocket
from daemon.net.static_files import Page
from daemon.sessions.admission import Admission, Refusal, unauthorised
from streaming.protocol import SUBPROTOCOL

METHODS = ("GET", "HEAD")
WEBSOCKET_PATHS = ("/", "/v1")


class Endpoints:
    """By path. warmth: waits, where a websocket may wait for the model before it is let in."""

    def __init__(
        self,
        admission: Admission,
        metrics: Metrics,
        health: Callable[[], Health],
        warmth: Callable[[], Awaitable[None]],
    ) -> None:
        self._admission = admission
        self._metrics = metrics
        self._health = health
        self._warmth = warmth
        self._page = Page()
        self.router = Router(
            {
                "/livez": lambda _: health().livez(),
                "/readyz": lambda _: health().readyz(),
                "/healthz": self._known_only(lambda: health().healthz(metrics.counts())),
                "/metrics": self._known_only(self._metrics_text),
            }
            | dict.fromkeys(WEBSOCKET_PATHS, self._point_out)
        )

    async def answer(self, socket: ServerConnection, request: Request) -> Response | None:
        """Reply to a request before it becomes a websocket; None lets it become one."""
        if request.method not in METHODS:
            text = f"{request.method} is not served here: use {' or '.join(METHODS)}\n"
            allow = {"Allow": ", ".join(METHODS)}
            return Reply(HTTPStatus.METHOD_NOT_ALLOWED, text, headers=allow).response(socket)
        response = await self._respond(socket, request)
        if response is not None and request.method == "HEAD":
            response.body = b""  # its length stays told (RFC 9110, 9.3.2)
        return response

    async def _respond(self, socket: ServerConnection, request: Request) -> Response | None:
        if not wants_websocket(request):
            page = self._page.answer(path(request), request)
            return page or self.router.answer(request).response(socket)
        if path(request) not in WEBSOCKET_PATHS:
            return self.router.answer(request).response(socket)
        refusal = await self._admit(socket, request)
        if refusal is None:
            return None
        self._metrics.refused.labels(refusal.reason).inc()
        return refusal.reply.response(socket)

    async def _admit(self, socket: ServerConnection, request: Request) -> Refusal | None:
        label = self._admission.authenticate(request)
        if isinstance(label, Refusal):
            return label
        await self._warmth()
        return self._admission.admit(socket, request, label)

    def _known_only(self, answer: Callable[[], Reply]) -> Callable[[Request], Reply]:
        """`answer` for those with a token, where there are tokens."""
        return lambda request: answer() if self._admission.knows(request) else unauthorised()

    def _point_out(self, request: Request) -> Reply:
        """Tell a plain request that a websocket is wanted; or what refuses one now: a browser hears
        nothing of why its websocket failed, so the page asks in this way.
        """
        label = self._admission.authenticate(request)
        refusal = label if isinstance(label, Refusal) else self._admission.check_capacity(label)
        if refusal is not None:
            return refusal.reply
        text = f"this is captiond: connect by websocket, subprotocol {SUBPROTOCOL}\n"
        return Reply(HTTPStatus.UPGRADE_REQUIRED, text, headers={"Upgrade": "websocket"})

    def _metrics_text(self) -> Reply:
        return Reply(HTTPStatus.OK, self._metrics.text(), CONTENT_TYPE)
