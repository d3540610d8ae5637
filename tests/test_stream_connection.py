"""Sessions one after another on a stream (tests/test_stream_service.py has the rest, over Wyoming)."""

import pytest

from tests.support.fakes import ScriptedEngine
from tests.support.wire import sentence, serving, until
from tests.support.wyoming import TCP, calling


async def test_nothing_is_read_while_finals_are_pending() -> None:
    engine = ScriptedEngine()
    async with serving(engine, wyoming=TCP) as daemon, calling(daemon) as client:
        engine.hold()
        await client.speak(sentence())
        await client.say("audio-stop")
        await until(engine.entered.is_set)
        await client.say("ping", {"text": "behind"})
        engine.release()
        kinds = [one.kind for one in await client.receive_until("pong")]
    assert kinds.index("transcript") < kinds.index("pong")


async def test_the_tenth_session_is_as_the_first() -> None:
    async with serving(ScriptedEngine(), wyoming=TCP) as daemon, calling(daemon) as client:
        texts = set()
        for _ in range(10):
            await client.speak(sentence())
            await client.say("audio-stop")
            texts.add((await client.receive_until("transcript"))[-1].data["text"])
        assert len(texts) == 1


@pytest.mark.parametrize("seconds", [0.2])
async def test_an_idle_session_is_ended(seconds: float) -> None:
    async with (
        serving(ScriptedEngine(), wyoming=TCP, idle_seconds=seconds) as daemon,
        calling(daemon) as client,
    ):
        await client.speak(sentence())
        heard = await client.receive_until("error")
        assert heard[-1].data["code"] == "idle"
