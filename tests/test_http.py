from http import HTTPStatus

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request

from daemon.net.http import Reply, Router, path, wants_websocket
from tests.support.fakes import ScriptedEngine
from tests.support.wire import get, serving


def request(target: str, **headers: str) -> Request:
    return Request(target, Headers(headers))


def test_a_path_leads_to_its_answer() -> None:
    router = Router({"/a": lambda _: Reply(HTTPStatus.OK, "A")})
    assert router.answer(request("/a?b=c")).body == "A"


@pytest.mark.parametrize("target", ["/b", "/a/", "/../a", "//a", "http://[", "*"])
def test_any_other_path_is_not_found(target: str) -> None:
    """And what there is, is said."""
    reply = Router({"/a": lambda _: Reply(HTTPStatus.OK, "A")}).answer(request(target))
    assert reply.status == 404
    assert "known paths: /a" in str(reply.body)


def test_a_path_has_no_query() -> None:
    assert path(request("/v1?resume=x#y")) == "/v1"


@pytest.mark.parametrize(
    ("headers", "wants"),
    [({"Upgrade": "WebSocket"}, True), ({"Upgrade": "h2c"}, False), ({}, False)],
)
def test_a_wish_for_a_websocket(headers: dict[str, str], *, wants: bool) -> None:
    assert wants_websocket(request("/", **headers)) is wants


async def test_a_reply_is_sent_as_it_is() -> None:
    """Each field once, the length in bytes."""
    async with serving(ScriptedEngine()) as daemon:
        page = Reply(HTTPStatus.OK, "\u00e4", "text/html", {"Cache-Control": "no-cache"})
        daemon.endpoints.router.routes["/page"] = lambda _: page
        status, head, body = await get(daemon, "/page")
    assert (status, body) == (200, "\u00e4")
    fields = [line.lower() for line in head.splitlines()]
    assert fields.count("content-length: 2") == 1
    assert fields.count("content-type: text/html") == 1
    assert sum(line.startswith("content-") for line in fields) == 2
    assert "cache-control: no-cache" in fields
