import asyncio
from http import HTTPStatus

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from daemon.net.http import Reply, Router, path, wants_websocket


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
    page = Reply(HTTPStatus.OK, "\u00e4", "text/html", {"Cache-Control": "no-cache"})
    router = Router({"/page": lambda _: page})

    def answer(socket: ServerConnection, asked: Request) -> Response:
        return router.answer(asked).response(socket)

    async with serve(lambda _: asyncio.sleep(0), "127.0.0.1", 0, process_request=answer) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
    status, *fields = head.lower().splitlines()
    assert (status.split()[1], body) == ("200", "\u00e4")
    assert fields.count("content-length: 2") == 1
    assert fields.count("content-type: text/html") == 1
    assert sum(line.startswith("content-") for line in fields) == 2
    assert "cache-control: no-cache" in fields
