from typing import Any

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request

from daemon.config import Config
from daemon.net.auth import Tokens
from daemon.sessions.admission import Refusal, authenticate, capacity_refusal
from tests.support.fakes import health

TOKEN = "a-token-of-some-length"
TOKENS = Tokens({"alice": TOKEN})


def test_the_door_knows_a_client_by_the_label_of_its_token() -> None:
    headers = Headers(Authorization=f"Bearer {TOKEN}")
    assert authenticate(Request("/", headers), TOKENS, ()) == "alice"
    assert authenticate(Request("/", Headers()), Tokens({}), ()) == ""


def test_a_token_among_the_subprotocols_is_no_unknown_one() -> None:
    headers = Headers({"Sec-WebSocket-Protocol": f"captiond.token.{TOKEN}"})
    assert authenticate(Request("/", headers), TOKENS, ()) == "alice"


@pytest.mark.parametrize(
    ("headers", "reason", "status"),
    [
        ({"Sec-WebSocket-Protocol": "captiond.v9"}, "subprotocol", 400),
        ({"Origin": "https://evil.example", "Host": "127.0.0.1"}, "origin", 403),
        ({}, "token", 401),
        ({"Authorization": "Bearer wrong-token-of-a-length"}, "token", 401),
    ],
)
def test_who_may_not_come_in_is_told_why(headers: dict[str, str], reason: str, status: int) -> None:
    refusal = authenticate(Request("/", Headers(headers)), TOKENS, ())
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.reply.status) == (reason, status)
    assert TOKEN not in str(refusal)
    assert ("WWW-Authenticate" in refusal.reply.headers) == (status == 401)


@pytest.mark.parametrize(
    ("changes", "of_token", "reason", "status"),
    [
        ({"status": "warming_up"}, 0, "warming_up", 503),
        ({"status": "stalled"}, 0, "stalled", 503),
        ({"status": "stopping"}, 0, "stopping", 503),
        ({"late": True}, 0, "lag", 503),
        ({"full": True}, 0, "full", 503),
        ({}, 2, "token_full", 429),
    ],
)
def test_where_there_is_no_room_a_client_is_told_when_to_try_again(
    changes: dict[str, Any], of_token: int, reason: str, status: int
) -> None:
    config = Config(max_sessions_per_token=2)
    refusal = capacity_refusal(health(**changes), config, of_token=of_token, returning=False)
    assert refusal is not None
    assert (refusal.reason, refusal.reply.status) == (reason, status)
    assert refusal.reply.headers["Retry-After"] == "5"


def test_there_is_room() -> None:
    assert capacity_refusal(health(), Config(), of_token=99, returning=False) is None


@pytest.mark.parametrize("changes", [{"full": True}, {"late": True}])
def test_who_comes_back_has_a_place_already(changes: dict[str, Any]) -> None:
    assert capacity_refusal(health(**changes), Config(), of_token=0, returning=True) is None


def test_nobody_comes_back_to_a_daemon_that_stops() -> None:
    stopping = health(status="stopping")
    assert capacity_refusal(stopping, Config(), of_token=0, returning=True) is not None
