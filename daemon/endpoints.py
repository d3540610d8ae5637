"""What the daemon answers over HTTP: the page, probes, metrics, and who may become a websocket."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from daemon.files.api import MODELS, Api
from daemon.files.service import FileService
from daemon.monitoring.health import Health
from daemon.monitoring.metrics import CONTENT_TYPE, Metrics
from daemon.net.cors import cors, preflight
from daemon.net.exchange import Exchange
from daemon.net.http import JSON, Reply, Router, path, wants_websocket
from daemon.net.listener import own_ports
from daemon.net.static_files import Page
from daemon.sessions.admission import Admission, Refusal, unauthorised
from daemon.sessions.live_session import Service
from streaming.dialects.offers import BY_PATH, NATIVE, Offer
from streaming.dialects.rest import RestError
from streaming.protocol import SUBPROTOCOL

METHODS = ("GET", "HEAD")


class Endpoints:
    """By path, or by port where a protocol has one of its own.

    service: None while the model loads. warmth: waits, where a request may wait for the model before it is let in.
    """

    def __init__(
        self,
        admission: Admission,
        metrics: Metrics,
        health: Callable[[], Health],
        service: Callable[[], Service | None],
        warmth: Callable[[], Awaitable[None]],
    ) -> None:
        self.files = FileService(admission, metrics, health, service, warmth)
        self._api = Api(self.files)
        self._admission = admission
        self._metrics = metrics
        self._health = health
        self._warmth = warmth
        self._page = Page()
        self._by_port = own_ports(admission.config)
        self.router = Router(
            {
                "/livez": lambda _: health().livez(),
                "/readyz": lambda _: health().readyz(),
                "/healthz": self._known_only(lambda: health().healthz(metrics.counts())),
                "/metrics": self._known_only(self._metrics_text),
            }
            | {path: partial(self._point_out, offer) for path, offer in BY_PATH.items()}
        )

    async def answer(self, socket: ServerConnection, request: Request) -> Response | None:
        """Reply to a request before it becomes a websocket; None lets it become one."""
        if request.method == "OPTIONS" and (methods := self._api_methods(path(request))):
            return preflight(request, self._origins, methods).response(socket)
        if request.method not in METHODS:
            return not_allowed(request.method, METHODS).response(socket)
        response = await self._respond(socket, request)
        if response is not None and request.method == "HEAD":
            response.body = b""  # its length stays told (RFC 9110, 9.3.2)
        return response

    async def take(self, exchange: Exchange) -> None:
        """Answer a request that has a body."""
        handler = self._api.handlers.get(path(exchange.request))
        exchange.headers = cors(exchange.request, self._origins)
        if handler is None:
            await exchange.reply(not_allowed("POST", METHODS))
        else:
            await handler(exchange)

    async def _respond(self, socket: ServerConnection, request: Request) -> Response | None:
        if not wants_websocket(request):
            page = self._page.answer(path(request), request)
            return page or self._plain(request).response(socket)
        offer = self._offer(socket, request)
        if offer is None:
            return self.router.answer(request).response(socket)
        refusal = await self._admit(socket, request, offer)
        if refusal is None:
            return None
        self._metrics.refused.labels(refusal.reason).inc()
        return in_its_form(refusal.reply, offer).response(socket)

    def _plain(self, request: Request) -> Reply:
        where = path(request)
        if self._api_methods(where) == METHODS:
            reply = self._api.models(request)
            return replace(reply, headers={**reply.headers, **cors(request, self._origins)})
        if where in self._api.handlers and where not in self.router.routes:
            return not_allowed(request.method, ("POST",))
        return self.router.answer(request)

    @property
    def _origins(self) -> Sequence[str]:
        return self._admission.config.allowed_origins

    def _api_methods(self, where: str) -> Sequence[str]:
        """The methods of a path that pages of other origins may ask; none: it is no such path."""
        if where == MODELS or where.startswith(f"{MODELS}/"):
            return METHODS
        return ("POST",) if where in self._api.handlers else ()

    def _offer(self, socket: ServerConnection, request: Request) -> Offer | None:
        """What is spoken at this port and path, if anything."""
        address = socket.local_address  # a text where it is a Unix socket
        port = address[1] if isinstance(address, tuple) else 0
        return self._by_port.get(port) or BY_PATH.get(path(request))

    async def _admit(
        self, socket: ServerConnection, request: Request, offer: Offer
    ) -> Refusal | None:
        label = self._admission.authenticate(request, offer)
        if isinstance(label, Refusal):
            return label
        guest = self._admission.converse(request, label, offer)
        if isinstance(guest, Refusal):
            return guest
        await self._warmth()
        return self._admission.admit(socket, request, guest)

    def _known_only(self, answer: Callable[[], Reply]) -> Callable[[Request], Reply]:
        """`answer` for those with a token, where there are tokens."""
        return lambda request: answer() if self._admission.knows(request) else unauthorised()

    def _point_out(self, offer: Offer, request: Request) -> Reply:
        """Tell a plain request that a websocket is wanted; or what refuses one now: a browser hears
        nothing of why its websocket failed, so the page asks in this way.
        """
        label = self._admission.authenticate(request, offer)
        refusal = label if isinstance(label, Refusal) else self._admission.check_capacity(label)
        if refusal is not None:
            return refusal.reply
        spoken = f"subprotocol {SUBPROTOCOL}" if offer is NATIVE else f"protocol of {offer.title}"
        text = f"this is captiond: connect by websocket, {spoken}\n"
        return Reply(HTTPStatus.UPGRADE_REQUIRED, text, headers={"Upgrade": "websocket"})

    def _metrics_text(self) -> Reply:
        return Reply(HTTPStatus.OK, self._metrics.text(), CONTENT_TYPE)


def in_its_form(reply: Reply, offer: Offer) -> Reply:
    """`reply`, a line of text, as the protocol tells of errors over HTTP."""
    if offer.refusal is None:
        return reply
    assert isinstance(reply.body, str)
    body = offer.refusal(RestError(reply.status, reply.body.rstrip("\n")))
    return replace(reply, body=body, kind=JSON)


def not_allowed(method: str, allowed: Sequence[str]) -> Reply:
    """For a method that a path does not have."""
    text = f"{method} is not served here: use {' or '.join(allowed)}\n"
    headers = {"Allow": ", ".join(allowed)}
    return Reply(HTTPStatus.METHOD_NOT_ALLOWED, text, headers=headers)
