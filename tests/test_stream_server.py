import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from daemon.net.listener import ListenError
from daemon.net.stream_server import StreamServer
from tests.support.fakes import PATIENCE


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def listening(
    address: str = "tcp://127.0.0.1:0", most: int = 9
) -> AsyncIterator[StreamServer]:
    server = StreamServer(address, echo, most)
    await server.open()
    try:
        yield server
    finally:
        server.close()
        server.drop()
        await asyncio.wait_for(server.wait_closed(), PATIENCE)


async def said_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"x")
    return await asyncio.wait_for(reader.read(1), PATIENCE)


async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the connection has been ended."""
    try:
        return await said_back(reader, writer) == b""
    except ConnectionError:
        return True


async def test_connections_are_handled_up_to_their_number() -> None:
    async with listening(most=1) as server:
        first = await asyncio.open_connection("127.0.0.1", server.port)
        assert await said_back(*first) == b"x"
        second = await asyncio.open_connection("127.0.0.1", server.port)
        assert await nothing(*second)
        assert await said_back(*first) == b"x"
        for _, writer in (first, second):
            writer.close()


async def test_those_that_are_dropped_end_at_once() -> None:
    async with listening() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await said_back(reader, writer) == b"x"
        server.drop()
        assert await nothing(reader, writer)
        writer.close()


async def test_a_unix_socket_goes_with_its_server(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with listening(f"unix://{path}") as server:
        connection = await asyncio.open_unix_connection(path)
        assert await said_back(*connection) == b"x"
        assert server.port == 0
        connection[1].close()
    assert not path.exists()


async def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter"
    path.write_text("dear")
    with pytest.raises(ListenError, match="letter"):
        await StreamServer(f"unix://{path}", echo, 9).open()
    assert path.read_text() == "dear"


async def test_a_port_in_use_is_named() -> None:
    async with listening() as server:
        with pytest.raises(ListenError, match=str(server.port)):
            await StreamServer(f"tcp://127.0.0.1:{server.port}", echo, 9).open()
