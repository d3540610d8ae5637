"""How the client library mends a connection that breaks, against a scripted daemon over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from clients import stream
from clients.stream import (
    Captions,
    ConnectionLostError,
    StreamError,
    connect,
)
from streaming import protocol
from tests.support import standin
from tests.support.certificates import certificates
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.relay import Relay, relaying
from tests.support.wire import frames, sentence, serving, until

# What stands where the daemon was, while it is away: nothing that upgrades to a websocket.
STRANGE = {
    "hung up": b"",
    "torn": b"HTTP/1.1 101 Swit",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "502": b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>",
    "503": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "404": b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nnone",
    "200": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}


def resumable_ready(heard: int = 0) -> protocol.Ready:
    limits = structs.replace(standin.ready().limits, resume_seconds=60.0)
    return structs.replace(standin.ready(), key="k", heard=heard, limits=limits)


async def begin(peer: standin.Peer) -> None:
    await peer.until(protocol.Start)
    await peer.send(resumable_ready())


@asynccontextmanager
async def hearing(url: str, into: list[protocol.ServerMessage]) -> AsyncIterator[Captions]:
    """A stream that is read beside what is sent, to its end."""
    async with connect(url) as captions:
        reading = asyncio.create_task(standin.collect(aiter(captions), into))
        yield captions
        await reading


async def test_a_broken_connection_is_mended() -> None:
    async def script(peer: standin.Peer) -> None:
        if len(server.peers) == 1:
            await begin(peer)
            await peer.until(protocol.Flush)
            await peer.send(
                standin.START_OF_SPEECH,
                standin.final("one"),
                protocol.Heard(bytes=2),
                standin.SECOND_START,
            )
            await peer.until(bytes)
            peer.websocket.transport.abort()
            return
        wish = await peer.receive()
        assert wish == protocol.Resume(session="s1", key="k", finals=1, heard=2)
        await peer.send(resumable_ready(heard=3), standin.SECOND_START)
        await peer.until(protocol.Stop)
        await peer.send(standin.final("two", utterance=1), standin.closed(4))

    messages: list[protocol.ServerMessage] = []
    async with standin.standin(script) as server, hearing(server.url, messages) as captions:
        await captions.send(b"ab")
        await captions.flush()
        await until(lambda: standin.SECOND_START in messages)
        await captions.send(b"cdef")
        await captions.stop()
    assert messages == [
        standin.START_OF_SPEECH,
        standin.final("one"),
        standin.SECOND_START,
        standin.final("two", utterance=1),
        standin.closed(4),
    ]
    assert server.peers[1].audio == b"def"
    assert server.peers[1].messages[1:] == [protocol.Stop()]


async def test_a_session_that_is_gone_is_a_lost_connection() -> None:
    async def script(peer: standin.Peer) -> None:
        first = await peer.receive()
        if isinstance(first, protocol.Start):
            await peer.send(resumable_ready())
            await peer.until(bytes)
            peer.websocket.transport.abort()
            return
        await peer.send(protocol.Error(code="bad_resume", message="no such session", fatal=False))
        await peer.websocket.wait_closed()

    async with standin.standin(script) as server, connect(server.url) as captions:
        await captions.send(b"..")
        with pytest.raises(ConnectionLostError, match="no such session"):
            await standin.collect(aiter(captions), [])
        with pytest.raises(ConnectionLostError):
            await captions.send(b"..")


async def test_a_daemon_that_hangs_up_with_a_code_means_it() -> None:
    async def script(peer: standin.Peer) -> None:
        await begin(peer)
        await peer.websocket.close(1009, "too large")

    async with standin.standin(script) as server, connect(server.url) as captions:
        with pytest.raises(ConnectionLostError, match="too large"):
            await standin.collect(aiter(captions), [])
        assert len(server.peers) == 1


async def test_a_flush_is_answered_once() -> None:
    first, again, second = (
        protocol.Flushed(at=0.1),
        protocol.Flushed(at=0.1),
        protocol.Flushed(at=0.2),
    )

    async def script(peer: standin.Peer) -> None:
        if len(server.peers) == 1:
            await begin(peer)
            await peer.until(protocol.Flush)
            await peer.send(standin.final("one"), first)
            await peer.until(bytes)
            peer.websocket.transport.abort()
            return
        await peer.receive()
        await peer.send(resumable_ready(heard=2), again)  # of the history
        await peer.until(protocol.Flush)
        await peer.send(again)  # to the one that was sent again
        await peer.until(protocol.Flush)
        await peer.send(second)
        await peer.until(protocol.Stop)
        await peer.send(standin.closed(4))

    messages: list[protocol.ServerMessage] = []
    async with standin.standin(script) as server, hearing(server.url, messages) as captions:
        await captions.send(b"ab")
        await captions.flush()
        await until(lambda: first in messages)
        await captions.send(b"cd")
        await captions.flush()
        await captions.stop()
    assert messages == [standin.final("one"), first, second, standin.closed(4)]


async def test_a_connection_that_died_silently_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router forgot it, say: no byte comes, not even a ping, and no error either."""
    monkeypatch.setattr(stream, "SILENT_S", 0.2)

    async def script(peer: standin.Peer) -> None:
        if len(server.peers) == 1:
            await begin(peer)
            await peer.websocket.wait_closed()
            return
        monkeypatch.setattr(stream, "SILENT_S", PATIENCE)
        assert isinstance(await peer.receive(), protocol.Resume)
        await peer.send(resumable_ready())
        await peer.until(protocol.Stop)
        await peer.send(standin.final("heard after all"), standin.closed(2))

    messages: list[protocol.ServerMessage] = []
    async with standin.standin(script) as server, hearing(server.url, messages) as captions:
        await captions.send(b"abcd")
        await until(lambda: len(server.peers) == 2)
        await captions.stop()
    assert messages == [standin.final("heard after all"), standin.closed(2)]


async def mended(url: str, relay: Relay, answer: bytes) -> None:
    """A session whose connection is cut in mid-sentence; `answer` meets the first attempts to resume."""
    messages: list[protocol.ServerMessage] = []
    async with hearing(url, messages) as captions:
        before, behind = frames(sentence(), 64_000)
        await captions.send(before)
        await until(lambda: bool(messages))
        relay.answers = [answer] * 3
        relay.cut()
        await captions.send(behind)
        await captions.stop()
    assert not relay.answers
    account = messages[-1]
    assert isinstance(account, protocol.Closed)
    assert account.received == len(sentence()) // 2


@pytest.mark.parametrize("answer", STRANGE.values(), ids=STRANGE)
async def test_a_strange_answer_while_resuming_is_a_lost_connection(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a session has begun it is an error at once."""
    monkeypatch.setattr(stream, "BACKOFF_S", (0.0, 0.01))
    async with serving(ScriptedEngine()) as daemon, relaying(daemon.port) as relay:
        url = f"ws://127.0.0.1:{relay.port}"
        relay.answers = [answer]
        with pytest.raises(StreamError, match=r"takes no session now|not a captiond|answered HTTP"):
            async with connect(url):
                pass
        await mended(url, relay, answer)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["torn", "plain"]
)
async def test_a_torn_handshake_of_tls_while_resuming_is_a_lost_connection(
    answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BACKOFF_S", (0.0, 0.01))
    made = certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", made.root)
    async with (
        serving(ScriptedEngine(), tls_certificate=made.certificate, tls_key=made.key) as daemon,
        relaying(daemon.port) as relay,
    ):
        await mended(f"wss://127.0.0.1:{relay.port}", relay, answer)


async def test_what_was_in_the_way_to_the_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BACKOFF_S", (0.0, 0.1))
    async with (
        serving(ScriptedEngine(), resume_seconds=0.3) as daemon,
        relaying(daemon.port) as relay,
        connect(f"ws://127.0.0.1:{relay.port}") as captions,
    ):
        relay.answers = [STRANGE["404"]] * 9
        relay.cut()
        with pytest.raises(ConnectionLostError, match=r"again in time: .* HTTP 404: none"):
            await standin.collect(aiter(captions), [])
