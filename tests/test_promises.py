"""What users of such daemons complain of, held against this one over real sockets."""

import asyncio
import time
import zlib

import pytest
from websockets.frames import Frame, Opcode

from daemon.server import Daemon
from daemon.sessions.lag import LagMonitor
from model.engine.requests import Request
from streaming import protocol
from streaming.session import Output, Session
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.wire import (
    Client,
    calling,
    frames,
    half_a_sentence,
    sentence,
    serving,
    speech,
    talk,
    until,
)

SECOND = 32_000  # bytes of 16 kHz mono int16

LANGUAGES = (None, "de", "en", ["de", "en"])
CAPPED, UNCAPPED = (2, 5), 6


def wish(number: int) -> protocol.Start:
    """What one of eight asks for. Three never pause for long enough; two of them reach a cap."""
    return protocol.Start(
        prompt=f"speaker {number}",
        language=LANGUAGES[number % 4],
        partials=number < 4,
        cap_ms=10_000 if number in CAPPED else None,
        endpoint_silence_ms=5_000 if number in (*CAPPED, UNCAPPED) else None,
    )


def heard(request: Request) -> str:
    """Who is heard, and what: another's text, or another's sound, would show."""
    sound = f"{len(request.audio)} samples, {zlib.crc32(request.audio.tobytes())}"
    before = zlib.crc32(request.prompt.encode())  # with the text of what was cut off before
    return f"{request.prompt[:9]}: {request.language}, {sound}, {before}"


async def speak(daemon: Daemon, number: int) -> Client:
    """The whole session of one of the eight, with sound of its own."""
    async with calling(daemon) as client:
        await client.say(wish(number))
        for frame in frames(speech()[number * 2 * SECOND :][: 13 * SECOND], SECOND // 4):
            await client.say(frame)
            await asyncio.sleep(0)  # the others speak, too
        await client.finish()
    return client


def said(client: Client) -> list[tuple[int, float, float, str, str]]:
    """All of its finals but the figures of their decoding."""
    return [
        (final.utterance, final.start, final.end, final.text, final.language)
        for final in client.all(protocol.Final)
    ]


def outstanding(daemon: Daemon) -> list[int]:
    """How many finals each session awaits."""
    return [session.lag.outstanding for session in daemon.sessions]


async def test_each_of_eight_gets_what_it_would_get_alone() -> None:
    engine = ScriptedEngine(text=heard, held=True)
    async with serving(engine) as daemon:
        speaking = [asyncio.create_task(speak(daemon, number)) for number in range(8)]
        await until(lambda: len(outstanding(daemon)) == 8 and sum(outstanding(daemon)) >= 4)
        engine.release()
        together = await asyncio.gather(*speaking)
    assert engine.most_occupied > 1, "they were not heard side by side"
    async with serving(ScriptedEngine(text=heard)) as daemon:
        for number, client in enumerate(together):
            alone = said(await speak(daemon, number))
            assert said(client) == alone
            assert alone
            assert number < 4 or not client.all(protocol.Partial)
            if isinstance(language := LANGUAGES[number % 4], str):
                assert {final.language for final in client.all(protocol.Final)} == {language}
            (ready,) = client.all(protocol.Ready)
            assert ready.limits.utterance_seconds == (10.0 if number in CAPPED else 30.0)
            longest = max(final.end - final.start for final in client.all(protocol.Final))
            assert (longest <= 10.0) is (number != UNCAPPED)
            texts = [
                message.text
                for message in client.all(protocol.Final) + client.all(protocol.Partial)
            ]
            assert all(text.startswith(f"speaker {number}: ") for text in texts)


@pytest.mark.parametrize("commands", [(protocol.Stop(),), (protocol.Flush(), protocol.Stop())])
async def test_the_last_sound_may_come_in_one_segment_with_the_commands(
    commands: tuple[protocol.Flush | protocol.Stop, ...],
) -> None:
    sound = half_a_sentence()
    tail = [Frame(Opcode.BINARY, sound[-SECOND:])]
    tail += [Frame(Opcode.TEXT, protocol.encode(command).encode()) for command in commands]
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say(protocol.Start(partials=False), sound[:-SECOND])
        await client.receive_until(protocol.Ready)
        client.socket.transport.write(b"".join(frame.serialize(mask=True) for frame in tail))
        await client.hear_all()
        assert await client.hang_up() == (1000, "")
    (final,) = client.all(protocol.Final)
    (closed,) = client.all(protocol.Closed)
    samples = len(sound) // 2
    assert final.end == samples / 16_000
    assert final.text == str(round((final.end - final.start) * 16_000))
    assert (closed.received, closed.finals) == (samples, 1)
    flushed = [protocol.Flushed(at=final.end)] * (len(commands) - 1)
    assert client.heard[-2 - len(flushed) :] == [final, *flushed, closed]


async def test_the_connection_closes_as_soon_as_the_session_is_closed() -> None:
    clock = asyncio.get_running_loop().time
    async with serving(ScriptedEngine()) as daemon, calling(daemon) as client:
        await client.say(protocol.Start(), sentence(), protocol.Stop())
        await client.receive_until(protocol.Closed)
        told = clock()
        await asyncio.wait_for(client.socket.wait_closed(), PATIENCE)
        assert clock() - told <= 2.0
        assert client.socket.close_code == 1000


FASTER = 40  # than life


async def test_a_machine_too_slow_says_so_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request takes 1.3 times as long as its sound. Partials suffer, and sound waits unread."""
    most = 6.0
    backlogs: list[float] = []
    original = Session.process

    def hear(session: Session) -> list[Output]:
        backlogs.append(session.pending_samples / 16_000)
        return original(session)

    def toil(request: Request) -> str:
        time.sleep(1.3 * len(request.audio) / 16_000 / FASTER)
        return str(len(request.audio))

    async def speak_on(client: Client) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        for number, frame in enumerate(frames(speech()[: 20 * SECOND], SECOND // 2)):
            await asyncio.sleep(began + number / 2 / FASTER - clock())
            await client.say(frame)
        await client.say(protocol.Flush())

    monkeypatch.setattr(Session, "process", hear)
    monkeypatch.setattr(LagMonitor, "AFTER", LagMonitor.AFTER / FASTER)
    monkeypatch.setattr(LagMonitor, "EVERY", LagMonitor.EVERY / FASTER)
    engine = ScriptedEngine(slots=1, text=toil)
    async with serving(engine, max_buffered_seconds=most) as daemon, calling(daemon) as client:
        await client.say(protocol.Start(language="en"))
        speaking = asyncio.create_task(speak_on(client))
        assert (await client.receive_until(protocol.Lag)).shedding == "partials"
        await client.receive_until(protocol.Flushed)
        await speaking
        while client.all(protocol.Lag)[-1].shedding != "nothing":
            await client.receive()
        await client.finish()
        assert daemon.scheduler.stats().superseded > 0
    (closed,) = client.all(protocol.Closed)
    finals = client.all(protocol.Final)
    assert [final.utterance for final in finals] == list(range(closed.finals))
    assert sum(int(final.text) for final in finals) == closed.speech
    assert closed.received == 20 * 16_000
    assert not client.all(protocol.Error)
    assert max(backlogs) <= most, "more was heard while too much waited"


async def test_without_speech_a_flush_has_its_answer_and_no_final() -> None:
    async with serving(ScriptedEngine(text=lambda _: "as before")) as daemon:
        async with calling(daemon) as client:
            await client.say(protocol.Start(language="en"), half_a_sentence(), protocol.Flush())
            await client.receive_until(protocol.Flushed)
            before = len(client.heard)
            assert [final.text for final in client.all(protocol.Final)] == ["as before"]
            for quiet in (b"", bytes(2), bytes(3 * SECOND)):
                await client.say(quiet, protocol.Flush())
                await client.receive_until(protocol.Flushed)
            await client.finish()
            assert await client.hang_up() == (1000, "")
        (final,) = client.all(protocol.Final)
        spoken = round((final.end - final.start) * 16_000)
        first = len(half_a_sentence()) // 2
        places = [first, first + 1, first + 1 + 3 * 16_000]
        closed = protocol.Closed(
            received=places[-1], speech=spoken, silence=places[-1] - spoken, refused=0, finals=1
        )
        assert client.heard[before:] == [
            *(protocol.Flushed(at=at / 16_000) for at in places),
            closed,
        ]
        assert await talk(daemon)


async def test_twenty_clients_share_one_model() -> None:
    engine = ScriptedEngine(held=True)
    async with serving(engine, max_sessions=20) as daemon:
        talking = [asyncio.create_task(talk(daemon)) for _ in range(20)]
        await until(lambda: len(daemon.sessions) == 20)
        engine.release()
        finals = await asyncio.gather(*talking)
    texts = {tuple(final.text for final in one) for one in finals}
    assert len(texts) == 1
    assert texts != {()}


async def test_a_live_speaker_waits_for_two_utterances_of_a_file_at_most() -> None:
    engine = ScriptedEngine(slots=1, held=True)
    async with serving(engine) as daemon, calling(daemon) as file, calling(daemon) as live:
        await file.say(protocol.Start(partials=False, prompt="file"))
        for _ in range(20):
            await file.say(half_a_sentence(), protocol.Flush())
        await file.say(protocol.Stop())
        await until(lambda: outstanding(daemon) == [20])
        unbroken = protocol.Start(partials=False, prompt="live", endpoint_silence_ms=10_000)
        await live.say(unbroken, speech()[: 3 * SECOND], protocol.Stop())
        await until(lambda: outstanding(daemon) == [20, 1])
        engine.release()
        await live.hear_all()
        await file.hear_all()
        assert len(live.all(protocol.Final)) == 1
        assert len(file.all(protocol.Final)) == 20
    order = [request.prompt for request in engine.admitted]
    assert order.index("live") <= 2
