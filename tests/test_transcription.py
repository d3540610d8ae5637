import asyncio
from collections.abc import AsyncIterator

import pytest

from daemon.files.transcription import RecognitionError, TooLongError, Transcription, in_blocks
from daemon.server import Daemon
from streaming.protocol import Final, Start
from tests.support.fakes import ScriptedEngine
from tests.support.wire import frames, serving, speech, talk, until


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        yield one


async def transcribed(
    daemon: Daemon, audio: bytes, told: list[float] | None = None
) -> tuple[list[Final], Transcription]:
    files = daemon.endpoints.files.loaded
    made = Transcription("file-0", "", Start(partials=False), files, (told or []).append)
    return [final async for final in made.finals(pieces(*frames(audio)))], made


async def test_finals_are_a_sessions_and_progress_is_told() -> None:
    engine = ScriptedEngine()
    told: list[float] = []
    async with serving(engine) as daemon:
        own = await talk(daemon, Start(partials=False))
        made = Transcription(
            "f", "", Start(partials=False), daemon.endpoints.files.loaded, told.append
        )
        audio = pieces(*frames(speech()[: 4 * 32_000]))
        found = [final async for final in made.finals(audio)]
    assert [(one.start, one.end, one.text) for one in found] == [
        (one.start, one.end, one.text) for one in own
    ]
    assert made.duration == sum(told) == 4.0


async def test_no_more_is_read_than_the_recogniser_can_have_at_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("daemon.files.transcription.AHEAD", 4 * 16_000)
    engine = ScriptedEngine()
    read = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal read
        for one in frames(speech() * 3):
            read += len(one)
            yield one

    async with serving(engine) as daemon:
        engine.hold()
        made = Transcription("f", "", Start(), daemon.endpoints.files.loaded, lambda _: None)

        async def run() -> int:
            return len([final async for final in made.finals(counted())])

        running = asyncio.create_task(run())
        await until(engine.entered.is_set)
        await asyncio.sleep(0.3)
        assert read < len(speech())
        engine.release()
        assert await running > 10
    assert read == 3 * len(speech())


async def test_what_cannot_be_recognised_ends_it() -> None:
    async with serving(ScriptedEngine(text=lambda _: "unspeakable")) as daemon:
        with pytest.raises(RecognitionError, match="the script says so"):
            await transcribed(daemon, speech())


async def test_no_partial_and_no_early_final_is_asked_for() -> None:
    engine = ScriptedEngine()
    async with serving(engine) as daemon:
        found, _ = await transcribed(daemon, speech())
    assert len(engine.admitted) == len(found)


async def test_blocks_are_joined_and_have_a_limit() -> None:
    joined = [one async for one in in_blocks(pieces(b"ab", b"cd", b"e"), 2, 9.0)]
    assert joined == [b"abcd", b"e"]
    with pytest.raises(TooLongError):
        async for _ in in_blocks(pieces(b"abc"), 2, 1.0):
            pass
