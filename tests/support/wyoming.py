"""A Wyoming client by hand."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from daemon.server import Daemon
from streaming.dialects.wyoming import EventReader, WyomingEvent
from tests.support.fakes import PATIENCE
from tests.support.wire import frames

FORMAT = {"rate": 16_000, "width": 2, "channels": 1}


class WyomingClient:
    """Speaks by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._events = EventReader()
        self._waiting: list[WyomingEvent] = []

    async def say(
        self, kind: str, data: dict[str, Any] | None = None, payload: bytes = b""
    ) -> None:
        body = json.dumps(data or {}).encode()
        header = {"type": kind, "data_length": len(body), "payload_length": len(payload)}
        self._writer.write(json.dumps(header).encode() + b"\n" + body + payload)
        await self._writer.drain()

    async def speak(self, audio: bytes, **asked: Any) -> None:
        """A whole session but for its end."""
        await self.say("transcribe", asked)
        await self.say("audio-start", FORMAT)
        for frame in frames(audio, 2048):
            await self.say("audio-chunk", FORMAT, frame)

    async def receive(self) -> WyomingEvent | None:
        """The next event; None at the end."""
        async with asyncio.timeout(PATIENCE):
            while not self._waiting:
                data = await self._reader.read(65_536)
                if not data:
                    return None
                self._waiting += self._events.read(data)
        return self._waiting.pop(0)

    async def receive_until(self, kind: str) -> list[WyomingEvent]:
        heard: list[WyomingEvent] = []
        while not heard or heard[-1].kind != kind:
            event = await self.receive()
            assert event is not None, heard
            heard.append(event)
        return heard


@asynccontextmanager
async def calling(daemon: Daemon) -> AsyncIterator[WyomingClient]:
    assert daemon.streams.server is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", daemon.streams.server.port)
    try:
        yield WyomingClient(reader, writer)
    finally:
        writer.close()


TCP = "tcp://127.0.0.1:0"
