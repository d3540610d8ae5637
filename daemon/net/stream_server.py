"""A port, or a Unix socket, of byte streams: connections for protocols that are no websocket.

Reads nothing itself and decides about no session.
"""

import asyncio
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from daemon.net.listener import ListenError, watch_peer

READ_AHEAD = 2**16  # bytes

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class StreamServer:
    """Accepts connections at `address`, tcp://HOST:PORT or unix:///PATH, at most `most` at once."""

    def __init__(self, address: str, handle: Handler, most: int) -> None:
        self._url = urlsplit(address)
        self._handle = handle
        self.most = most
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self) -> None:
        """Listen. Raises ListenError."""
        try:
            if self._url.scheme == "unix":
                _remove_socket(Path(self._url.path))
                self._server = await asyncio.start_unix_server(
                    self._accepted, self._url.path, limit=READ_AHEAD
                )
            else:
                self._server = await asyncio.start_server(
                    self._accepted, self._url.hostname, self._url.port, limit=READ_AHEAD
                )
        except OSError as error:
            raise ListenError(f"cannot listen on {self._url.geturl()}: {error.strerror}") from None

    @property
    def port(self) -> int:
        """The TCP port; 0 for a Unix socket."""
        assert self._server is not None
        name = self._server.sockets[0].getsockname()
        return 0 if isinstance(name, str) else int(name[1])

    def close(self) -> None:
        """Accept no more."""
        if self._server is not None:
            self._server.close()
            if self._url.scheme == "unix":
                with suppress(OSError):
                    Path(self._url.path).unlink()

    def drop(self) -> int:
        """End every connection without a word; how many there were."""
        for task, writer in self._tasks.items():
            writer.transport.abort()
            task.cancel()
        return len(self._tasks)

    async def wait_closed(self) -> None:
        """Until the last connection has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= self.most:
            writer.transport.abort()
            return
        connection: socket.socket = writer.get_extra_info("socket")
        watch_peer(connection)
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks[task] = writer
        task.add_done_callback(self._tasks.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._handle(reader, writer)
        except ConnectionError:
            pass  # the client is gone
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def _remove_socket(path: Path) -> None:
    """What a daemon that was killed has left."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
