import asyncio
import math
import struct
from collections.abc import Awaitable, Callable

import pytest

from daemon.server import Daemon
from daemon.sessions.frame_handler import MOST_ERRORS
from streaming.protocol import (
    Closed,
    Error,
    Final,
    Flush,
    Ready,
    Start,
    Stop,
)
from tests.support.fakes import ScriptedEngine
from tests.support.wire import (
    FRAME,
    Client,
    calling,
    frames,
    sentence,
    serving,
    talk,
    until,
)

NAN = struct.pack("<2f", 0.0, math.nan)


async def bad_json(client: Client) -> None:
    await client.say(Start(), "not json")


async def bad_utf8(client: Client) -> None:
    await client.say(Start())
    await client.socket.send(b"\xff", text=True)


async def unknown_message(client: Client) -> None:
    await client.say(Start(), '{"type": "dance"}')


async def unknown_field(client: Client) -> None:
    await client.say('{"type": "start", "tempo": 1}', Start())


async def audio_first(client: Client) -> None:
    await client.say(sentence()[:FRAME], Start())


async def flush_first(client: Client) -> None:
    await client.say(Flush(), Start())


async def stop_first(client: Client) -> None:
    await client.say(Stop(), Start())


async def wrong_rate(client: Client) -> None:
    await client.say('{"type": "start", "rate": 16}', Start())


async def wrong_encoding(client: Client) -> None:
    await client.say('{"type": "start", "encoding": "mp3"}', Start())


async def wrong_language(client: Client) -> None:
    await client.say(Start(language=["en", "xx"]), Start())


async def escaped_resume(client: Client) -> None:
    """Its type is written with an escape, as JSON allows."""
    wish = r'{"type":"re\u0073ume","session":"s","key":"k","finals":0,"heard":0}'
    await client.say(wish, Start())


async def second_start(client: Client) -> None:
    await client.say(Start(), Start(rate=8000))


async def odd_bytes(client: Client) -> None:
    await client.say(Start(), sentence()[:333], sentence()[333:1001], sentence()[1001:2000])


async def empty_frames(client: Client) -> None:
    await client.say(Start(), b"", b"")


@pytest.mark.parametrize(
    ("misbehave", "codes"),
    [
        (bad_json, ["bad_json"]),
        (unknown_message, ["bad_message"]),
        (unknown_field, ["bad_message"]),
        (audio_first, ["bad_order"]),
        (flush_first, ["bad_order"]),
        (stop_first, ["bad_order"]),
        (wrong_rate, ["bad_message"]),
        (wrong_encoding, ["bad_message"]),
        (wrong_language, ["bad_request"]),
        (escaped_resume, ["bad_resume"]),
        (second_start, ["bad_order"]),
        (odd_bytes, []),
        (empty_frames, []),
    ],
)
async def test_bad_input_is_answered_and_the_session_goes_on(
    misbehave: Callable[[Client], Awaitable[None]], codes: list[str]
) -> None:
    """The client can set it right on the same connection; the neighbour notices nothing."""
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        neighbour = asyncio.create_task(talk(daemon))
        await misbehave(client)
        await client.say(sentence(), Stop())
        await client.hear_all()
        errors = client.all(Error)
        assert [error.code for error in errors] == codes
        assert not any(error.fatal for error in errors)
        assert client.all(Final)
        assert await client.hang_up() == (1000, "")
        assert await neighbour


async def test_a_wrong_language_is_told_the_right_ones() -> None:
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say(Start(language="xx"))
        error = await client.hear()
        assert isinstance(error, Error)
        assert "de, en" in error.message


async def test_audio_with_nan_is_refused_and_the_session_goes_on() -> None:
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say(Start(encoding="f32le"), NAN, struct.pack("<2f", 0.5, -0.5), Stop())
        await client.hear_all()
        (error,) = client.all(Error)
        assert (error.code, error.fatal) == ("bad_audio", False)
        (closed,) = client.all(Closed)
        assert (closed.received, closed.refused) == (4, 2)
        assert await talk(daemon)


MIB = 2**20


async def early(client: Client) -> None:
    await client.say(sentence()[:2] * (MIB // 2), Start())


async def spoilt(client: Client) -> None:
    await client.say(Start(encoding="f32le"), bytes(MIB - 4) + NAN[4:])


async def mistaken(client: Client) -> None:
    header = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0" + struct.pack("<HHIIHH", 1, 2, 8000, 32_000, 4, 16)
    await client.say(Start(), (header + b"data\0\0\0\0").ljust(MIB, b"\0"))


@pytest.mark.parametrize(
    ("misbehave", "code", "refused"),
    [
        (early, "bad_order", 0),
        (spoilt, "bad_audio", MIB // 4),
        (mistaken, "bad_audio", MIB // 2),
    ],
)
async def test_a_long_frame_that_is_refused_is_one_error(
    misbehave: Callable[[Client], Awaitable[None]], code: str, refused: int
) -> None:
    """However many slices it would have been heard in. None of it is heard, all of it is counted."""
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await misbehave(client)
        await client.say(Stop())
        await client.hear_all()
        assert [error.code for error in client.all(Error)] == [code]
        (closed,) = client.all(Closed)
        assert (closed.received, closed.refused) == (refused, refused)


async def test_a_long_frame_after_stop_is_one_error() -> None:
    engine = ScriptedEngine()
    engine.hold()
    async with serving(engine) as daemon, calling(daemon) as client:
        await client.say(Start(), sentence(), Stop(), bytes(MIB), Stop())
        await client.hear_until(Error)
        engine.release()
        await client.hear_all()
        assert [error.code for error in client.all(Error)] == ["bad_order"]


async def test_what_a_client_gets_wrong_is_quoted_in_part() -> None:
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say('{"type": "start", "' + "x" * 100_000 + '": 1}')
        error = await client.hear_until(Error)
        assert error.code == "bad_message"
        assert len(error.message) == 500


@pytest.mark.parametrize("late", [b"\0\0", Flush()])
async def test_whatever_follows_stop_is_out_of_order(late: bytes | Flush) -> None:
    """The pending final still comes."""
    engine = ScriptedEngine()
    engine.hold()
    async with serving(engine) as daemon, calling(daemon) as client:
        await client.say(Start(), sentence(), Stop(), late)
        assert (await client.hear_until(Error)).code == "bad_order"
        engine.release()
        await client.hear_all()
        assert client.all(Final)


async def test_too_many_errors_end_the_session_after_its_finals() -> None:
    """What was spoken before is not lost."""
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say(Start(), sentence(), *["nonsense"] * (MOST_ERRORS + 5))
        assert await client.hang_up() == (1008, "too many protocol errors")
        assert isinstance(client.heard[-1], Closed)
        assert isinstance(client.heard[-2], Error)
        assert client.heard[-2].fatal
        assert client.all(Final)
        assert len(client.all(Error)) == MOST_ERRORS + 1
        assert await talk(daemon)


async def test_a_client_that_never_starts_is_let_go() -> None:
    """Nonsense does not prolong its time."""
    async with serving(ScriptedEngine(), start_timeout_seconds=0.1) as daemon:
        async with calling(daemon) as client:
            await client.say("nonsense")
            assert await client.hang_up() == (1008, "no start message in time")
            assert [error.fatal for error in client.all(Error)] == [False, True]
        assert await talk(daemon)


async def test_a_start_in_time_ends_the_wait() -> None:
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await until(lambda: bool(daemon.connections))
        (connection,) = daemon.connections
        assert "start" in connection.handler.deadlines.pending
        await client.say(Start())
        await client.hear_until(Ready)
        assert "start" not in connection.handler.deadlines.pending


async def test_a_frame_above_the_limit_closes_with_the_numbers() -> None:
    async with serving(ScriptedEngine(), max_frame_bytes=2048) as daemon:
        neighbour = asyncio.create_task(talk_in_small_frames(daemon))
        async with calling(daemon) as client:
            await client.say(Start(), bytes(4096))
            code, reason = await client.hang_up()
            assert code == 1009
            assert reason is not None
            assert "4096" in reason
            assert "2048" in reason
        assert await neighbour


async def talk_in_small_frames(daemon: Daemon) -> list[Final]:
    async with calling(daemon) as client:
        await client.say(Start(), *frames(sentence(), FRAME), Stop())
        await client.hear_all()
        return client.all(Final)


async def test_text_that_is_not_utf8_closes_the_connection_alone() -> None:
    """RFC 6455 asks for 1007."""
    async with serving(ScriptedEngine()) as daemon:
        async with calling(daemon) as client:
            await bad_utf8(client)
            code, _ = await client.hang_up()
            assert code == 1007
        assert await talk(daemon)
