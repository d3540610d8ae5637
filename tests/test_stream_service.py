"""Wyoming over real sockets."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from daemon.server import Daemon
from streaming.dialects.wyoming import EventReader, WyomingEvent
from streaming.protocol import Start
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.wire import frames, sentence, serving, talk, until

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

    async def hear(self) -> WyomingEvent | None:
        """The next event; None at the end."""
        async with asyncio.timeout(PATIENCE):
            while not self._waiting:
                data = await self._reader.read(65_536)
                if not data:
                    return None
                self._waiting += self._events.read(data)
        return self._waiting.pop(0)

    async def hear_until(self, kind: str) -> list[WyomingEvent]:
        heard: list[WyomingEvent] = []
        while not heard or heard[-1].kind != kind:
            event = await self.hear()
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


async def test_finals_are_those_of_a_session_and_the_connection_stays() -> None:
    async with serving(ScriptedEngine(), wyoming=TCP) as daemon:
        said = " ".join(final.text for final in await talk(daemon, Start(partials=False)))
        async with calling(daemon) as client:
            for _ in range(2):
                await client.speak(sentence())
                await client.say("audio-stop")
                heard = await client.hear_until("transcript-stop")
                chunks = [one.data["text"] for one in heard if one.kind == "transcript-chunk"]
                assert "".join(chunks) == said
                assert heard[-2] == WyomingEvent("transcript", {"text": said, "language": "en"})
        await until(lambda: not daemon.admission.admitted)


async def test_a_unix_socket_will_do(tmp_path: Path) -> None:
    path = tmp_path / "wyoming.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))  # as a daemon leaves it that was killed
    async with serving(ScriptedEngine(), wyoming=f"unix://{path}"):
        reader, writer = await asyncio.open_unix_connection(path)
        client = WyomingClient(reader, writer)
        await client.say("describe")
        (info,) = await client.hear_until("info")
        assert info.data["asr"][0]["models"][0]["languages"] == ["en", "de"]
        writer.close()
    assert not path.exists()


async def test_what_is_wrong_ends_the_connection_with_an_error() -> None:
    async with serving(ScriptedEngine(), wyoming=TCP) as daemon:
        async with calling(daemon) as client:
            await client.speak(sentence(), language="xx")
            heard = await client.hear_until("error")
            assert "xx" in heard[-1].data["text"] or "language" in heard[-1].data["text"]
            while await client.hear() is not None:
                pass
        await until(lambda: not daemon.admission.admitted)
        assert await talk(daemon)


async def test_where_there_is_no_room_that_is_told() -> None:
    async with (
        serving(ScriptedEngine(), wyoming=TCP, max_sessions=1) as daemon,
        calling(daemon) as first,
        calling(daemon) as second,
    ):
        await first.speak(sentence())
        await until(lambda: len(daemon.admission.admitted) == 1)
        await second.speak(b"")
        heard = await second.hear_until("error")
        assert "taken" in heard[-1].data["text"]
        await first.say("audio-stop")
        await first.hear_until("transcript-stop")


async def test_a_client_that_vanishes_leaves_nothing() -> None:
    async with serving(ScriptedEngine(), wyoming=TCP) as daemon:
        async with calling(daemon) as client:
            await client.speak(sentence())
            await until(lambda: len(daemon.admission.admitted) == 1)
        await until(lambda: not daemon.admission.admitted)
        assert not len(daemon.sessions)


async def test_a_stop_delivers_what_was_spoken() -> None:
    engine = ScriptedEngine()
    async with serving(engine, wyoming=TCP) as daemon, calling(daemon) as client:
        engine.hold()
        await client.speak(sentence())
        await until(lambda: daemon.scheduler.facts().lag > 0)
        daemon.stop()
        engine.release()
        heard = await client.hear_until("transcript-stop")
        kinds = [one.kind for one in heard]
        assert "transcript-chunk" in kinds
        assert "error" in kinds
        assert await client.hear() is None


async def test_an_idle_connection_does_not_delay_the_stop() -> None:
    async with serving(ScriptedEngine(), wyoming=TCP) as daemon, calling(daemon) as client:
        await client.say("ping", {"text": "a"})
        await client.hear_until("pong")
        daemon.stop()
        heard = await client.hear_until("error")
        assert heard[-1].data["code"] == "shutting_down"
