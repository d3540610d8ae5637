"""Where clients come in: opened and closed together."""

import socket

import pytest

from daemon.config import Config
from daemon.net.listener import ListenError
from daemon.server import Daemon
from streaming.protocol import Speech, Start
from tests.support.fakes import ScriptedEngine
from tests.support.wire import calling, frames, sentence, serving, until
from tests.support.wyoming import TCP
from tests.support.wyoming import calling as calling_wyoming


async def test_where_one_cannot_be_had_none_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        daemon = Daemon(Config(port=0, wyoming=address), ScriptedEngine)
        with pytest.raises(ListenError, match="cannot listen on"):
            await daemon.start()
    await until(lambda: not daemon.listener.is_serving)


async def test_a_second_stop_ends_the_connections_of_both(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = ScriptedEngine()
    async with (
        serving(engine, wyoming=TCP) as daemon,
        calling(daemon) as websocket,
        calling_wyoming(daemon) as stream,
    ):
        engine.hold()
        await stream.speak(sentence())
        await until(lambda: daemon.scheduler.stats().lag > 0)
        await websocket.say(Start(), *frames(sentence(), 3_200))
        await websocket.receive_until(Speech)
        daemon.stop()
        await until(lambda: not daemon.listener.is_serving)
        daemon.stop()
        await until(lambda: "2 connections are dropped before their end" in caplog.text)
