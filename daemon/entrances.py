"""Where clients come in: the daemon's own port, with its HTTP, and Wyoming's address."""

import socket
from collections.abc import Collection, Sequence

from daemon.config import ConfigError
from daemon.net.listener import Listener, ListenError
from daemon.sessions.stream_service import StreamService


class Entrances:
    """Opened and closed together."""

    def __init__(self, listener: Listener, streams: StreamService) -> None:
        self.listener = listener
        self.streams = streams

    async def open(self, inherited: Sequence[socket.socket]) -> None:
        """Listen. Raises ListenError, or ConfigError where nothing can be announced; then nothing is open."""
        await self.listener.open(inherited)
        try:
            await self.streams.open()
        except (ListenError, ConfigError):
            self.listener.close(keep=())
            raise

    async def close(self, keep: Collection[object]) -> None:
        """Accept no more; what is in `keep`, or was asked or spoken, still gets its answer."""
        self.listener.close(keep)
        await self.streams.close()

    def drop(self) -> int:
        """End what is left without a close frame; how many connections that is."""
        late = set(self.listener.sockets)
        self.listener.drop(late)
        return len(late) + self.streams.drop()

    async def wait_closed(self) -> None:
        """Wait until the last connection has ended."""
        await self.listener.wait_closed()
        await self.streams.wait_closed()
