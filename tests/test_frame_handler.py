import asyncio
import math
import struct

import pytest

from daemon.monitoring.metrics import total
from daemon.sessions.frame_handler import MOST_ERRORS
from streaming.protocol import ClientMessage, Closed, Error, Final, Flush, Start, Stop
from tests.support.fakes import ScriptedEngine
from tests.support.wire import FRAME, calling, sentence, serving, talk

ESCAPED = r'{"type":"re\u0073ume","session":"s","key":"k","finals":0,"heard":0}'  # as JSON allows
Said = tuple[ClientMessage | str | bytes, ...]


@pytest.mark.parametrize(
    ("said", "codes"),
    [
        ((Start(), "not json"), ["bad_json"]),
        ((Start(), '{"type": "dance"}'), ["bad_message"]),
        (('{"type": "start", "tempo": 1}', Start()), ["bad_message"]),
        ((sentence()[:FRAME], Start()), ["bad_order"]),
        ((Flush(), Start()), ["bad_order"]),
        ((Stop(), Start()), ["bad_order"]),
        (('{"type": "start", "rate": 16}', Start()), ["bad_message"]),
        (('{"type": "start", "encoding": "mp3"}', Start()), ["bad_message"]),
        ((Start(language=["en", "xx"]), Start()), ["bad_request"]),
        ((ESCAPED, Start()), ["bad_resume"]),
        ((Start(), Start(rate=8000)), ["bad_order"]),
        ((Start(), bytes(333), bytes(668), bytes(999)), []),
        ((Start(), b"", b""), []),
    ],
)
async def test_bad_input_is_answered_and_the_session_goes_on(said: Said, codes: list[str]) -> None:
    """The client can set it right on the same connection; the neighbour notices nothing."""
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        neighbour = asyncio.create_task(talk(daemon))
        await client.finish(*said, sentence())
        errors = client.all(Error)
        assert [error.code for error in errors] == codes
        assert not any(error.fatal for error in errors)
        assert client.all(Final)
        assert await client.hang_up() == (1000, "")
        assert await neighbour


async def test_a_wrong_language_is_told_the_right_ones() -> None:
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say(Start(language="xx"))
        error = await client.receive()
        assert isinstance(error, Error)
        assert "de, en" in error.message
        assert total(daemon.metrics.started) == 0


MIB = 2**20
SPOILT = bytes(MIB - 4) + struct.pack("<f", math.nan)
HEADER = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0" + struct.pack("<HHIIHH", 1, 2, 8000, 32_000, 4, 16)
MISTAKEN = (HEADER + b"data\0\0\0\0").ljust(MIB, b"\0")


@pytest.mark.parametrize(
    ("said", "code", "refused"),
    [
        ((bytes(MIB), Start()), "bad_order", 0),
        ((Start(encoding="f32le"), SPOILT), "bad_audio", MIB // 4),
        ((Start(), MISTAKEN), "bad_audio", MIB // 2),
    ],
    ids=["early", "spoilt", "mistaken"],
)
async def test_a_long_frame_refused_is_one_error(said: Said, code: str, refused: int) -> None:
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.finish(*said)
        assert [(error.code, error.fatal) for error in client.all(Error)] == [(code, False)]
        (closed,) = client.all(Closed)
        assert (closed.received, closed.refused) == (refused, refused)


async def test_what_a_client_gets_wrong_is_quoted_in_part() -> None:
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say('{"type": "start", "' + "x" * 100_000 + '": 1}')
        error = await client.receive_until(Error)
        assert error.code == "bad_message"
        assert len(error.message) == 500


@pytest.mark.parametrize("late", [(b"\0\0",), (Flush(),), (bytes(MIB), Stop())])
async def test_whatever_follows_stop_is_out_of_order(late: Said) -> None:
    """One error, however long the frame; another stop is none. The pending final still comes."""
    engine = ScriptedEngine(held=True)
    async with serving(engine) as daemon, calling(daemon) as client:
        await client.say(Start(), sentence(), Stop(), *late)
        await client.receive_until(Error)
        engine.release()
        await client.hear_all()
        assert [error.code for error in client.all(Error)] == ["bad_order"]
        assert client.all(Final)


async def test_too_many_errors_end_the_session_after_its_finals() -> None:
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


async def test_a_frame_above_the_limit_closes_with_the_numbers() -> None:
    async with serving(ScriptedEngine(), max_frame_bytes=2048) as daemon, calling(daemon) as client:
        await client.say(Start(), bytes(4096))
        code, reason = await client.hang_up()
        assert code == 1009
        assert reason is not None
        assert "4096" in reason
        assert "2048" in reason


async def test_text_that_is_not_utf8_closes_the_connection_alone() -> None:
    """RFC 6455 asks for 1007."""
    async with serving(ScriptedEngine()) as daemon:
        async with calling(daemon) as client:
            await client.say(Start())
            await client.socket.send(b"\xff", text=True)
            assert (await client.hang_up())[0] == 1007
        assert await talk(daemon)
