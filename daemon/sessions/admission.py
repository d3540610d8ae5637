"""Which websockets are let in, and what the others are told before they become one. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from websockets.datastructures import Headers

from daemon.config import Config
from daemon.monitoring.health import RETRY_AFTER, Health
from daemon.net.auth import TOKEN_PROTOCOL, Tokens, offered_protocols, origin_allowed
from daemon.net.http import Reply
from streaming.protocol import SUBPROTOCOL

STATUS_HEADER = "Captiond-Status"  # tells clients a daemon that loads from one that is busy
NOTHING: Mapping[str, str] = {}

# The label of the metric `captiond_refused`.
Reason = Literal[
    "subprotocol",
    "origin",
    "token",
    "warming_up",
    "stalled",
    "stopping",
    "lag",
    "full",
    "token_full",
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a websocket does not come about."""

    reason: Reason
    reply: Reply


def authenticate(headers: Headers, tokens: Tokens, allowed_origins: Sequence[str]) -> Refusal | str:
    """Who asks: the label of its token, "" where none is needed; or why nobody may ask so."""
    offered = [name for name in offered_protocols(headers) if not name.startswith(TOKEN_PROTOCOL)]
    if offered and SUBPROTOCOL not in offered:
        text = f"unknown subprotocol {', '.join(offered)}: this daemon speaks {SUBPROTOCOL}\n"
        return Refusal("subprotocol", Reply(HTTPStatus.BAD_REQUEST, text))
    if not origin_allowed(headers, allowed_origins):
        text = (
            "pages of this origin may not use this captiond: its administrator can add the origin "
            "to allowed_origins\n"
        )
        return Refusal("origin", Reply(HTTPStatus.FORBIDDEN, text))
    label = tokens.label(headers)
    return Refusal("token", unauthorised()) if label is None else label


def unauthorised() -> Reply:
    """For a request without a token that is known (RFC 6750, 3)."""
    return Reply(
        HTTPStatus.UNAUTHORIZED,
        "this captiond wants a token: Authorization: Bearer TOKEN, from browsers the subprotocol "
        f"{TOKEN_PROTOCOL}TOKEN beside {SUBPROTOCOL}\n",
        headers={"WWW-Authenticate": 'Bearer realm="captiond"'},
    )


def check_capacity(
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
    return None if returning else _no_room(health, config, of_token)


def _no_room(health: Health, config: Config, of_token: int) -> Refusal | None:
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
