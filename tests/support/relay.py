"""A TCP relay between a client and a daemon, whose connections a test can cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Relay:
    """Forwards what arrives at `port`.

    answers: what the next connections get in place of the target, once they have said something;
    then it hangs up, as a balancer does whose daemon is away.
    """

    port = 0

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Abort all connections, as a network that fails does."""
        for writer in self._writers:
            writer.transport.abort()

    async def refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Give a connection the next answer, and hang up."""
        answer = self.answers.pop(0)
        with suppress(ConnectionError):
            await reader.read(1 << 16)
            writer.write(answer)
            await writer.drain()
        writer.close()

    async def forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Bytes of one direction, until either side ends the connection."""
        self._writers.add(sink)
        try:
            with suppress(ConnectionError):
                while data := await source.read(1 << 16):
                    sink.write(data)
                    await sink.drain()
        finally:
            self._writers.discard(sink)
            sink.close()


@asynccontextmanager
async def relaying(target: int) -> AsyncIterator[Relay]:
    """A relay from a free port to the port `target` of this machine."""
    relay = Relay()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if relay.answers:
            await relay.refuse(reader, writer)
            return
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(relay.forward(reader, to_writer), relay.forward(to_reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
        await server.wait_closed()
