"""Which websockets are let in, and what the others are told before they become one."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Literal
from urllib.parse import parse_qs, parse_qsl, urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request

from daemon.config import Config
from daemon.monitoring.health import RETRY_AFTER, Health
from daemon.monitoring.metrics import Metrics
from daemon.net.auth import TOKEN_PROTOCOL, Tokens, offered_protocols, origin_allowed
from daemon.net.http import Reply
from daemon.sessions.registry import SessionRegistry
from streaming.dialects.dialect import Dialect, Opening
from streaming.dialects.offers import NATIVE, Offer
from streaming.protocol import SUBPROTOCOL, ProtocolError

STATUS_HEADER = "Captiond-Status"  # tells clients a daemon that loads from one that is busy
NOTHING: Mapping[str, str] = {}

# The label of the metric `captiond_refused`.
Reason = Literal[
    "subprotocol",
    "options",
    "origin",
    "token",
    "warming_up",
    "stalled",
    "stopping",
    "lag",
    "full",
    "token_full",
]


NO_ROOM: tuple[Reason, ...] = ("lag", "full", "token_full")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a websocket does not come about."""

    reason: Reason
    reply: Reply


@dataclass(slots=True)
class Guest:
    """A client that was let in: the label of its token, and what is spoken.

    patient: its protocol tells at the start of a session that there is no room.
    returning: let in, full or not, to resume a session, and did not start one. waiting: let in to be told of no
    room; it takes none.
    """

    label: str
    dialect: Dialect
    patient: bool = False
    returning: bool = False
    waiting: bool = False


def authenticate(
    request: Request, tokens: Tokens, allowed_origins: Sequence[str], offer: Offer = NATIVE
) -> Refusal | str:
    """The label of the client's token, "" where none is needed; or why no client may ask so."""
    headers = request.headers
    offered = [name for name in offered_protocols(headers) if not name.startswith(TOKEN_PROTOCOL)]
    if offered and not set(offer.subprotocols) & set(offered):
        text = f"unknown subprotocol {', '.join(offered)}: this daemon speaks {SUBPROTOCOL}\n"
        return Refusal("subprotocol", Reply(HTTPStatus.BAD_REQUEST, text))
    if not origin_allowed(headers, allowed_origins):
        text = (
            "pages of this origin may not use this captiond: its administrator can add the origin "
            "to allowed_origins\n"
        )
        return Refusal("origin", Reply(HTTPStatus.FORBIDDEN, text))
    label = tokens.label(request)
    return Refusal("token", unauthorised()) if label is None else label


def unauthorised() -> Reply:
    """For a request without a token that is known (RFC 6750, 3)."""
    return Reply(
        HTTPStatus.UNAUTHORIZED,
        "this captiond wants a token: Authorization: Bearer TOKEN, from browsers the subprotocol "
        f"{TOKEN_PROTOCOL}TOKEN beside {SUBPROTOCOL}\n",
        headers={"WWW-Authenticate": 'Bearer realm="captiond"'},
    )


def capacity_refusal(
    health: Health, config: Config, *, of_token: int, returning: bool
) -> Refusal | None:
    """Why there is no room now, if so.

    of_token: sessions that the client's token has taken. returning: the client says that it comes
    back to a session of its own, which has its place already.
    """
    if health.status == "warming_up":
        text = "captiond is still loading its model\n"
        return Refusal("warming_up", _busy(text, {STATUS_HEADER: "warming_up"}))
    if health.status != "ok":
        return Refusal(health.status, _busy(f"captiond is {health.status}\n"))
    return None if returning else _session_refusal(health, config, of_token)


def _session_refusal(health: Health, config: Config, of_token: int) -> Refusal | None:
    if health.late:
        text = f"captiond is overloaded: finals are {health.stats.wait:.0f} s late\n"
        return Refusal("lag", _busy(text))
    if health.full:
        return Refusal("full", _busy(f"all {config.max_sessions} sessions are taken\n"))
    most = config.max_sessions_per_token
    if most and of_token >= most:
        text = f"all {most} sessions of this token are taken\n"
        headers = {"Retry-After": RETRY_AFTER}
        return Refusal("token_full", Reply(HTTPStatus.TOO_MANY_REQUESTS, text, headers=headers))
    return None


def _busy(text: str, headers: Mapping[str, str] = NOTHING) -> Reply:
    return Reply(
        HTTPStatus.SERVICE_UNAVAILABLE, text, headers={"Retry-After": RETRY_AFTER, **headers}
    )


class Admission:
    """The websockets that take up a session, and whether there is room for another.

    config: the one in force. tokens: likewise; a reload replaces them.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        tokens: Tokens,
        registry: SessionRegistry,
        metrics: Metrics,
        health: Callable[[], Health],
    ) -> None:
        self._config = config
        self.tokens = tokens
        self.admitted: dict[object, Guest] = {}  # by connection
        self._registry = registry
        self._metrics = metrics
        self._health = health

    @property
    def full(self) -> bool:
        """Whether no session is free: finals that a transcript awaits are still to be decoded."""
        return self._fills(self.taken)

    @property
    def taken(self) -> int:
        """How many sessions are."""
        return sum(not guest.waiting for guest in self.admitted.values())

    def knows(self, request: Request) -> bool:
        """Whether the request has a token, where there are tokens."""
        return self.tokens.label(request) is not None

    @property
    def config(self) -> Config:
        """The one in force."""
        return self._config()

    def authenticate(self, request: Request, offer: Offer = NATIVE) -> Refusal | str:
        """The label of the client's token, or why it may not ask."""
        return authenticate(request, self.tokens, self.config.allowed_origins, offer)

    def converse(self, request: Request, label: str, offer: Offer) -> Refusal | Guest:
        """The client as it is served, or why it cannot be served what its URL asks for."""
        opening = Opening(
            name=secrets.token_hex(16),
            query=parse_qsl(urlsplit(request.path).query, keep_blank_values=True),
            headers={name.lower(): value for name, value in request.headers.raw_items()},
            time=time.time(),
            settings=self.config.streaming_settings,
        )
        try:
            return Guest(label, offer.dialect(opening), patient=offer.patient)
        except ProtocolError as error:
            return Refusal("options", Reply(HTTPStatus.BAD_REQUEST, f"{error}\n"))

    def admit(self, socket: ServerConnection, request: Request, guest: Guest) -> Refusal | None:
        """Take up a session, or say why there is none."""
        label = guest.label
        returning = self._returns(request, label)
        refusal = self.check_capacity(label, returning=returning)
        if refusal is not None and not (guest.patient and refusal.reason in NO_ROOM):
            return refusal
        guest.waiting = refusal is not None
        # The task that opens this connection ends with it, also if it never comes to the handler.
        task = asyncio.current_task()
        assert task is not None
        guest.returning = returning
        self.admitted[socket] = guest
        task.add_done_callback(lambda _: self.leave(socket))
        return None

    def leave(self, socket: object) -> None:
        """The connection has ended."""
        self.admitted.pop(socket, None)

    def check_capacity(
        self, label: str, *, returning: bool = False, besides: object = None
    ) -> Refusal | None:
        """Why there is no room now for a client whose token is called `label`, if so.

        besides: a connection whose place is not counted.
        """
        others = [
            one
            for socket, one in self.admitted.items()
            if socket is not besides and not one.waiting
        ]
        health = replace(self._health(), full=self._fills(len(others)))
        of_token = sum(one.label == label for one in others)
        return capacity_refusal(health, self.config, of_token=of_token, returning=returning)

    def start_refusal(self, socket: ServerConnection) -> str:
        """Why a connection may not start a session; empty if it may.

        Of one that was let in to resume, or to be told so, this has not been asked: there may be no room.
        """
        client = self.admitted[socket]
        if not (client.returning or client.waiting):
            return ""
        refusal = self.check_capacity(client.label, besides=socket)  # the room is for itself
        if refusal is None:
            client.returning = client.waiting = False
            return ""
        self._metrics.refused.labels(refusal.reason).inc()
        return str(refusal.reply.body).strip()

    def _fills(self, taken: int) -> bool:
        return taken + self._registry.finishing >= self.config.max_sessions

    def _returns(self, request: Request, label: str) -> bool:
        """Whether the client says that it comes back to a session of its own."""
        names = parse_qs(urlsplit(request.path).query).get("resume", [])
        return any(self._registry.holds(name, label) for name in names)
