"""The client library against a scripted daemon over real sockets."""

import asyncio
import re
import socket

import pytest
from msgspec import structs
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from clients.handshake import TRY_AGAIN_S
from clients.stream import (
    ConnectError,
    ConnectionLostError,
    FatalError,
    RefusedError,
    StreamError,
    WrongProtocolError,
    connect,
)
from streaming.protocol import (
    Closed,
    Error,
    Final,
    Flush,
    ProtocolError,
    ServerMessage,
    Start,
    Stop,
    encode,
)
from tests.support.standin import (
    Gate,
    Peer,
    Script,
    answering,
    closed,
    collect,
    final,
    partial,
    ready,
    standin,
)

SHUTTING_DOWN = Error(code="shutting_down", message="bye", fatal=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_session_from_start_to_closed() -> None:
    start = Start(encoding="f32le", rate=48_000, channels=2, language=["en", "de"], prompt="p")
    async with standin() as server, connect(server.url, start) as captions:
        assert captions.ready == ready()
        await captions.send(b"abc")
        await captions.flush()
        await captions.send(b"defgh")
        await captions.stop()
        messages = [message async for message in captions]
        assert messages == [final("one"), final("two"), closed(4)]
        (peer,) = server.peers
        assert peer.messages == [structs.replace(start, resumable=True), Flush(), Stop()]
        assert peer.audio == b"abcdefgh"


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 250, 1000])
async def test_audio_is_cut_to_the_limit_the_daemon_announced(size: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.open(frame_bytes=100)
        await peer.until(Stop)
        await peer.send(closed())

    pcm = bytes(n % 251 for n in range(size))
    async with standin(script) as server, connect(server.url) as captions:
        await captions.send(pcm)
        await captions.stop()
        assert [type(message) async for message in captions] == [Closed]
        assert all(0 < len(frame) <= 100 for frame in server.peers[0].frames)
        assert server.peers[0].audio == pcm


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_daemon_that_does_not_read_holds_the_sender(cancelled: bool) -> None:
    """All of the audio arrives later. A sender that is cancelled loses no message: stop gets through."""
    reading = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.open()
        await reading.wait()
        await peer.until(Stop)
        await peer.send(final("kept"), closed())

    pcm = bytes(64 << 20)
    async with standin(script) as server, connect(server.url) as captions:
        sending = asyncio.create_task(captions.send(pcm))
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done
        if cancelled:
            assert sending.cancel()
        reading.set()
        if not cancelled:
            await sending
        await captions.stop()
        assert [message async for message in captions] == [final("kept"), closed()]
        assert cancelled or sum(map(len, server.peers[0].frames)) == len(pcm)


async def test_captions_come_while_audio_is_being_sent() -> None:
    async def script(peer: Peer) -> None:
        await peer.open()
        for number in range(3):
            await peer.until(bytes)
            await peer.send(partial(f"{number}"))
        await peer.until(Stop)
        await peer.send(closed())

    async with standin(script) as server, connect(server.url) as captions:
        messages = aiter(captions)
        for number in range(3):
            await captions.send(b"..")
            assert await anext(messages) == partial(f"{number}")
        await captions.stop()
        assert isinstance(await anext(messages), Closed)


async def test_unread_captions_do_not_stop_the_daemon() -> None:
    texts = [f"{number} {'…' * 2000}" for number in range(3000)]

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.send(*map(final, texts))
        await peer.until(Stop)
        await peer.send(closed())

    async with standin(script) as server, connect(server.url) as captions:
        await captions.send(bytes(1 << 20))
        await captions.stop()
        finals = [message async for message in captions if isinstance(message, Final)]
        assert [message.text for message in finals] == texts


async def test_after_stop_nothing_can_be_sent() -> None:
    async with standin() as server, connect(server.url) as captions:
        await captions.stop()
        await captions.stop()
        with pytest.raises(RuntimeError, match="stopped"):
            await captions.send(b"..")
        with pytest.raises(RuntimeError, match="stopped"):
            await captions.flush()
        assert [type(message) async for message in captions] == [Final, Closed]
        assert server.peers[0].messages == [Start(resumable=True), Stop()]


async def refusal(kind: type[StreamError], url: str, start: Start | None = None) -> str:
    """What the error says with which no session comes about."""
    with pytest.raises(kind) as caught:
        async with connect(url, start or Start(), open_timeout=0.5):
            pass
    assert type(caught.value) is kind
    return str(caught.value)


async def test_without_a_daemon_the_error_says_how_to_start_one() -> None:
    url = f"ws://127.0.0.1:{free_port()}"
    assert re.search(f"{url}.*captiond serve", await refusal(ConnectError, url))


@pytest.mark.parametrize(
    "url", ["nonsense", "http://127.0.0.1", "ws://127.0.0.1:port", "ws://[::1"]
)
async def test_a_bad_url_is_an_error_that_shows_a_good_one(url: str) -> None:
    assert "ws://127.0.0.1:8765" in await refusal(ConnectError, url)


async def test_a_proxy_is_no_way_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "socks_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with standin() as server, connect(server.url) as captions:
        assert captions.ready == ready()


HTML = {"Content-Type": "text/html"}


def answer(status: int, body: str, headers: dict[str, str] | None = None) -> Gate:
    def gate(websocket: ServerConnection, request: Request) -> Response:
        response = websocket.respond(status, body)
        for name, value in (headers or {}).items():
            if name in response.headers:
                del response.headers[name]
            response.headers[name] = value
        return response

    return gate


@pytest.mark.parametrize(
    ("status", "body", "headers", "says", "retry_after"),
    [
        (503, "all are taken\n", {"Retry-After": "7"}, r"all are taken", 7.0),
        (503, "all are taken\n", {}, r"all are taken", TRY_AGAIN_S),
        (503, "all are taken\n", {"Retry-After": "?"}, r"all are taken", TRY_AGAIN_S),
        (502, "<p>nginx</p>\n", HTML, r"takes no session now: Bad Gateway$", TRY_AGAIN_S),
        (401, "no\n", {}, "CAPTIOND_TOKEN", None),
        (403, "no\n", {}, "refused", None),
    ],
)
async def test_a_daemon_that_refuses_says_why_and_when_to_come_again(
    status: int, body: str, headers: dict[str, str], says: str, retry_after: float | None
) -> None:
    """A proxy's page of HTML is nobody's reason."""
    async with standin(gate=answer(status, body, headers)) as server:
        with pytest.raises(RefusedError, match=says) as caught:
            async with connect(server.url):
                pass
    assert retry_after in (None, caught.value.retry_after)


async def test_another_http_service_is_not_a_daemon() -> None:
    async with standin(gate=answer(404, "no such page\n")) as server:
        assert "HTTP 404: no such page" in await refusal(WrongProtocolError, server.url)


async def test_a_websocket_without_our_subprotocol_is_not_a_daemon() -> None:
    async with standin(subprotocol=None) as server:
        assert "captiond.v1" in await refusal(WrongProtocolError, server.url)


async def test_a_server_that_speaks_no_http_is_not_a_daemon() -> None:
    async def mumble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(mumble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        said = await refusal(WrongProtocolError, f"ws://127.0.0.1:{port}")
    assert "is not a captiond daemon" in said


async def test_a_start_outside_the_protocol_is_found_before_connecting() -> None:
    with pytest.raises(ProtocolError, match="temperature"):
        async with connect("ws://127.0.0.1:1", Start(temperature=9.0)):
            pass


async def test_a_start_the_daemon_cannot_serve_is_refused_with_its_reason() -> None:
    """The client takes its leave with 1000, not with the code of an internal error."""
    left: list[int | None] = []

    async def script(peer: Peer) -> None:
        await peer.until(Start)
        await peer.send(Error(code="bad_request", message="this model knows en only", fatal=False))
        await peer.websocket.wait_closed()
        left.append(peer.websocket.close_code)

    async with standin(script) as server:
        said = await refusal(RefusedError, server.url, Start(language="de"))
    assert "this model knows en only" in said
    assert left == [1000]


async def hangs_up(peer: Peer) -> None:
    await peer.websocket.close(1008, "too many errors")


async def speaks_early(peer: Peer) -> None:
    await peer.send(final("early"))
    await peer.websocket.wait_closed()


async def falls_silent(peer: Peer) -> None:
    await peer.websocket.wait_closed()


@pytest.mark.parametrize(
    ("then", "kind", "says"),
    [
        (falls_silent, ConnectError, "did not answer within 0.5 s"),
        (hangs_up, ConnectionLostError, "too many errors"),
        (speaks_early, WrongProtocolError, "Final before Ready"),
    ],
)
async def test_a_daemon_that_never_gets_ready_is_given_up(
    then: Script, kind: type[StreamError], says: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.until(Start)
        await then(peer)

    async with standin(script) as server:
        assert says in await refusal(kind, server.url)


@pytest.mark.parametrize(
    "tail", [[], [final("spoken")], [final("spoken"), closed()]], ids=["", "final", "closed"]
)
async def test_a_fatal_error_comes_after_all_that_was_spoken(tail: list[ServerMessage]) -> None:
    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(bytes)
        await peer.send(SHUTTING_DOWN, *tail)
        await peer.websocket.close(1001)

    messages: list[ServerMessage] = []
    async with standin(script) as server, connect(server.url) as captions:
        await captions.send(b"..")
        with pytest.raises(FatalError, match=r"bye \(shutting_down\)") as caught:
            await collect(aiter(captions), messages)
        assert messages == [SHUTTING_DOWN, *tail]
        assert caught.value.error == SHUTTING_DOWN


async def test_an_error_that_is_not_fatal_is_a_message_like_others() -> None:
    failed = Error(code="decode_failed", message="utterance 0", fatal=False)
    async with standin(answering(failed, closed())) as server, connect(server.url) as captions:
        await captions.stop()
        assert [message async for message in captions] == [failed, closed()]


async def test_a_lost_connection_is_told_to_reader_and_sender() -> None:
    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.send(final("before"))
        await peer.until(bytes)
        peer.websocket.transport.abort()

    messages: list[ServerMessage] = []
    async with standin(script) as server, connect(server.url) as captions:
        await captions.send(b"..")
        with pytest.raises(ConnectionLostError):
            await collect(aiter(captions), messages)
        assert messages == [final("before")]
        with pytest.raises(ConnectionLostError):
            await captions.send(b"..")
        with pytest.raises(ConnectionLostError):
            await captions.stop()


async def test_closed_before_stop_is_a_lost_connection() -> None:
    """The daemon did not take all of the audio: that must not pass for success."""

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(bytes)
        await peer.send(final("half"), closed())

    messages: list[ServerMessage] = []
    async with standin(script) as server, connect(server.url) as captions:
        await captions.send(b"..")
        with pytest.raises(ConnectionLostError, match="before the end of the audio"):
            await collect(aiter(captions), messages)
        assert messages == [final("half"), closed()]


@pytest.mark.parametrize(
    "frame", [b"\x00", "{", '{"type": "applause"}', encode(ready()).replace("ready", "Ready")]
)
async def test_a_message_of_another_protocol_ends_the_stream(frame: str | bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.websocket.send(frame)
        await peer.websocket.wait_closed()

    async with standin(script) as server, connect(server.url) as captions:
        with pytest.raises(WrongProtocolError):
            await collect(aiter(captions), [])


def test_every_error_is_a_stream_error() -> None:
    kinds = {ConnectError, RefusedError, WrongProtocolError, FatalError, ConnectionLostError}
    assert set(StreamError.__subclasses__()) == kinds


async def test_a_token_is_shown_at_the_door() -> None:
    shown: list[str] = []

    def gate(_socket: ServerConnection, request: Request) -> Response | None:
        shown.extend(request.headers.get_all("Authorization"))
        return None

    async with standin(gate=gate) as server, connect(server.url, token="secret") as captions:
        await captions.stop()
        assert [message async for message in captions]
    assert shown == ["Bearer secret"]
