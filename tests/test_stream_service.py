"""Wyoming over real sockets."""

import asyncio
import socket
from pathlib import Path

from streaming.dialects.wyoming import WyomingEvent
from streaming.protocol import Start
from tests.support.fakes import ScriptedEngine
from tests.support.wire import sentence, serving, speech, talk, until
from tests.support.wyoming import TCP, WyomingClient, calling


async def test_finals_are_those_of_a_session_and_the_connection_stays() -> None:
    async with serving(ScriptedEngine(), wyoming=TCP) as daemon:
        said = " ".join(final.text for final in await talk(daemon, Start(partials=False)))
        async with calling(daemon) as client:
            for _ in range(2):
                await client.speak(sentence())
                await client.say("audio-stop")
                heard = await client.receive_until("transcript-stop")
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
        (info,) = await client.receive_until("info")
        assert info.data["asr"][0]["models"][0]["languages"] == ["en", "de"]
        writer.close()
    assert not path.exists()


async def test_what_is_wrong_ends_the_connection_with_an_error() -> None:
    async with serving(ScriptedEngine(), wyoming=TCP) as daemon:
        async with calling(daemon) as client:
            await client.speak(sentence(), language="xx")
            heard = await client.receive_until("error")
            assert "xx" in heard[-1].data["text"] or "language" in heard[-1].data["text"]
            while await client.receive() is not None:
                pass
        await until(lambda: not daemon.admission.admitted)
        assert await talk(daemon)


async def test_who_goes_on_talking_still_reads_what_is_wrong() -> None:
    """Home Assistant sends all of its audio before it listens."""
    async with serving(ScriptedEngine(), wyoming=TCP) as daemon, calling(daemon) as client:
        await client.speak(speech() * 4, language="xx")
        await client.say("audio-stop")
        assert (await client.receive_until("error"))[-1].data["code"] == "bad_request"
        assert await client.receive() is None


async def test_where_there_is_no_room_that_is_told() -> None:
    async with (
        serving(ScriptedEngine(), wyoming=TCP, max_sessions=1) as daemon,
        calling(daemon) as first,
        calling(daemon) as second,
    ):
        await first.speak(sentence())
        await until(lambda: len(daemon.admission.admitted) == 1)
        await second.speak(b"")
        heard = await second.receive_until("error")
        assert "taken" in heard[-1].data["text"]
        await first.say("audio-stop")
        await first.receive_until("transcript-stop")


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
        await until(lambda: daemon.scheduler.stats().lag > 0)
        daemon.stop()
        engine.release()
        heard = await client.receive_until("transcript-stop")
        kinds = [one.kind for one in heard]
        assert "transcript-chunk" in kinds
        assert "error" in kinds
        assert await client.receive() is None


async def test_an_idle_connection_does_not_delay_the_stop() -> None:
    async with serving(ScriptedEngine(), wyoming=TCP) as daemon, calling(daemon) as client:
        await client.say("ping", {"text": "a"})
        await client.receive_until("pong")
        daemon.stop()
        heard = await client.receive_until("error")
        assert heard[-1].data["code"] == "shutting_down"
