import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.net.exchange import READ_AHEAD, Exchange, RefusedError
from daemon.net.http import Reply
from tests.support.fakes import PATIENCE

Handle = Callable[[Exchange], Awaitable[None]]
HEAD = b"POST /x HTTP/1.1\r\nHost: h\r\n"


@asynccontextmanager
async def answering(handle: Handle) -> AsyncIterator[tuple[int, list[Exchange]]]:
    """A port at which `handle` answers every connection; the exchanges that have not ended."""
    here: list[Exchange] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            exchange = Exchange(handle, lambda _: None, here.remove)
            here.append(exchange)
            transport.set_protocol(exchange)
            exchange.begin_with(transport)

    server = await asyncio.get_running_loop().create_server(Accepted, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], here
    finally:
        server.close()
        for exchange in here:
            exchange.transport.abort()
        async with asyncio.timeout(PATIENCE):
            while here:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.005)


async def echo(exchange: Exchange) -> None:
    whole = b"".join([chunk async for chunk in exchange.body()])
    await exchange.reply(Reply(HTTPStatus.OK, whole))


async def ask(port: int, *pieces: bytes) -> bytes:
    """All that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()


@given(st.binary(max_size=300), st.data())
def test_a_body_comes_however_it_is_cut(body: bytes, data: st.DataObject) -> None:
    whole = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    edges = [0, *cuts, len(whole)]

    async def asked() -> bytes:
        async with answering(echo) as (port, _):
            return await ask(port, *(whole[a:b] for a, b in itertools.pairwise(edges)))

    assert asyncio.run(asked()).endswith(b"\r\n\r\n" + body)


async def test_chunks_are_joined() -> None:
    body = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with answering(echo) as (port, _):
        answer = await ask(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body)
    assert answer.endswith(b"\r\n\r\nabcde")


async def test_who_asks_first_is_told_to_go_on() -> None:
    head = HEAD + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    async with answering(echo) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        assert b" 100 " in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.write(b"ab")
        assert (await asyncio.wait_for(reader.read(), PATIENCE)).endswith(b"ab")
        writer.close()


async def test_a_refusal_is_read_by_a_client_that_still_sends() -> None:
    async def refuse(exchange: Exchange) -> None:
        async for _ in exchange.body():
            raise RefusedError(Reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too much"))

    head = HEAD + b"Content-Length: 50000000\r\n\r\n"
    async with answering(refuse) as (port, _):
        answer = await ask(port, head, *[bytes(2**16)] * 100)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"too much")


@pytest.mark.parametrize(
    "data",
    [
        b"POST /\0 HTTP/1.1\r\nHost: h\r\n\r\n",
        HEAD + b"Content-Length: x\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nnothing\r\n",
        b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    ],
    ids=["target", "length", "chunk", "headers"],
)
async def test_what_is_no_http_is_refused(data: bytes) -> None:
    async with answering(echo) as (port, _):
        answer = await ask(port, data)
    assert answer.startswith(b"HTTP/1.1 4")


async def test_a_fault_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(exchange: Exchange) -> None:
        raise LookupError(exchange.request.path)

    async with answering(fail) as (port, _):
        answer = await ask(port, HEAD + b"Content-Length: 0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert "a request failed" in caplog.text


async def test_a_body_that_hardly_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.net.exchange.PATIENCE", 0.1)
    async with answering(echo) as (port, _):
        answer = await ask(port, HEAD + b"Content-Length: 9\r\n\r\na")
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_who_is_not_read_sends_no_more() -> None:
    """What waits in memory is bounded; all of it comes once it is read."""
    may_read = asyncio.Event()
    waiting = 0

    async def slow(exchange: Exchange) -> None:
        nonlocal waiting
        await may_read.wait()
        size = 0
        async for chunk in exchange.body():
            waiting = max(waiting, len(chunk))
            size += len(chunk)
        await exchange.reply(Reply(HTTPStatus.OK, str(size)))

    size = 40 * READ_AHEAD
    async with answering(slow) as (port, _):
        head = HEAD + f"Content-Length: {size}\r\n\r\n".encode()
        sending = asyncio.create_task(ask(port, head, *[bytes(READ_AHEAD)] * 40))
        await asyncio.sleep(0.2)
        assert not sending.done()
        may_read.set()
        assert (await sending).endswith(str(size).encode())
    assert waiting <= READ_AHEAD


async def test_a_client_that_goes_cancels_what_is_done_for_it() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work(_: Exchange) -> None:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            cancelled.set()

    async with answering(work) as (port, here):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Content-Length: 0\r\n\r\n")
        await asyncio.wait_for(begun.wait(), PATIENCE)
        writer.close()
        await asyncio.wait_for(cancelled.wait(), PATIENCE)
        async with asyncio.timeout(PATIENCE):
            while here:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.005)


@given(st.binary(max_size=400))
def test_no_bytes_do_harm(data: bytes) -> None:
    """Each connection gets an answer, or nothing, and ends with its client."""

    async def asked() -> None:
        async with answering(echo) as (port, _):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST " + data)
            await writer.drain()
            writer.close()

    asyncio.run(asked())
