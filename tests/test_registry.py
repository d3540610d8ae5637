import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from daemon.monitoring.metrics import total
from daemon.server import Daemon
from streaming import protocol
from streaming.lifecycle import State
from tests.support.fakes import ScriptedEngine
from tests.support.wire import (
    ALICE,
    BOB,
    Client,
    bearer,
    calling,
    refusal,
    sentence,
    serving,
    speech,
    talk,
    until,
)

RESUMABLE = protocol.Start(partials=False, resumable=True)


async def begin(client: Client, audio: bytes) -> protocol.Ready:
    await client.say(RESUMABLE, audio)
    return await client.receive_until(protocol.Ready)


async def begin_and_stop(daemon: Daemon, *before_stop: protocol.Flush) -> protocol.Ready:
    """A session whose client has vanished when its stop had been heard."""
    async with calling(daemon) as client:
        ready = await begin(client, sentence())
        await client.say(*before_stop, protocol.Stop())
        await until(lambda: daemon.sessions[ready.session].state is State.DRAINING)
        await lose(daemon, client)
    return ready


async def lose(daemon: Daemon, client: Client) -> None:
    before = daemon.sessions.waiting
    client.socket.transport.abort()
    await until(lambda: daemon.sessions.waiting == before + 1)


def wish(ready: protocol.Ready, finals: int = 0, heard: int = 0, **changes: Any) -> protocol.Resume:
    assert ready.key is not None
    names: dict[str, Any] = {"session": ready.session, "key": ready.key} | changes
    return protocol.Resume(finals=finals, heard=heard, **names)


def keeping(
    engine: ScriptedEngine | None = None, **settings: Any
) -> AbstractAsyncContextManager[Daemon]:
    """A daemon that waits for lost clients."""
    return serving(engine or ScriptedEngine(), resume_seconds=900.0, **settings)


@asynccontextmanager
async def lost(daemon: Daemon, audio: bytes, **options: Any) -> AsyncIterator[protocol.Ready]:
    """The `ready` of a session whose client has vanished after `audio`."""
    async with calling(daemon, **options) as client:
        ready = await begin(client, audio)
        await until(lambda: daemon.sessions[ready.session].acknowledged_bytes == len(audio))
        await lose(daemon, client)
    yield ready


async def test_a_lost_client_gets_what_it_missed_and_goes_on() -> None:
    cut = 3 * 32_000 + 1
    async with keeping() as daemon, lost(daemon, speech()[:cut]) as ready:
        async with calling(daemon) as client:
            await client.say(wish(ready))
            again = await client.receive_until(protocol.Ready)
            assert (again.session, again.key, again.heard) == (ready.session, ready.key, cut)
            await client.finish(speech()[cut:])
            assert await client.hang_up() == (1000, "")
        whole = await talk_whole(daemon)
        assert [f.text for f in client.all(protocol.Final)] == [
            f.text for f in whole.all(protocol.Final)
        ]
        assert client.all(protocol.Speech) == whole.all(protocol.Speech)
        assert client.all(protocol.Closed) == whole.all(protocol.Closed)
        assert total(daemon.metrics.resumed) == 1


async def talk_whole(daemon: Daemon) -> Client:
    async with calling(daemon) as client:
        await client.finish(protocol.Start(partials=False), speech())
        return client


@pytest.mark.parametrize("seed", range(8))
async def test_cut_anywhere_the_finals_are_those_of_an_uninterrupted_stream(seed: int) -> None:
    dice = random.Random(seed)
    async with keeping() as daemon:
        whole = await talk_whole(daemon)
        ready: protocol.Ready | None = None
        finals: list[protocol.Final] = []
        at = 0
        for turn in range(4):
            async with calling(daemon) as client:
                await client.say(
                    RESUMABLE if ready is None else wish(ready, len(finals), max(at - 9, 0))
                )
                ready = await client.receive_until(protocol.Ready)
                at = ready.heard
                until_byte = len(speech()) if turn == 3 else dice.randrange(at, len(speech()))
                for first in range(at, until_byte, 12_345):
                    await client.say(speech()[first : min(first + 12_345, until_byte)])
                if turn < 3:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(dice.random() / 100):
                            await client.hear_all()
                    await lose(daemon, client)
                else:
                    await client.finish()
                finals += client.all(protocol.Final)
        assert [(f.utterance, f.start, f.text) for f in finals] == [
            (f.utterance, f.start, f.text) for f in whole.all(protocol.Final)
        ]
        assert client.all(protocol.Closed) == whole.all(protocol.Closed)


async def test_a_client_lost_after_stop_gets_its_finals_and_closed() -> None:
    engine = ScriptedEngine(held=True)
    async with keeping(engine) as daemon:
        ready = await begin_and_stop(daemon)
        engine.release()
        await until(lambda: daemon.sessions[ready.session].state.is_finished)
        async with calling(daemon) as client:
            await client.say(wish(ready))
            await client.hear_all()
            assert client.all(protocol.Final)
            assert await client.hang_up() == (1000, "")
        await until(lambda: not len(daemon.sessions))


async def test_who_comes_back_may_say_flush_and_stop_again() -> None:
    """It cannot know that they were heard."""
    engine = ScriptedEngine(held=True)
    async with keeping(engine) as daemon:
        ready = await begin_and_stop(daemon, protocol.Flush())
        async with calling(daemon) as client:
            await client.say(wish(ready), protocol.Flush(), protocol.Stop(), RESUMABLE)
            await client.receive_until(protocol.Error)  # all before that start has been heard
            engine.release()
            await client.hear_all()
            assert await client.hang_up() == (1000, "")
        assert len(client.all(protocol.Error)) == len(client.all(protocol.Flushed)) == 1
        assert client.all(protocol.Final)


async def test_who_comes_back_to_a_session_that_is_ending_is_told_the_rest() -> None:
    """What it still sends is too late, and no fault of its own."""
    engine = ScriptedEngine(held=True)
    async with keeping(engine, idle_seconds=0.2) as daemon:
        async with calling(daemon) as client:
            ready = await begin(client, sentence())
            await until(lambda: daemon.sessions[ready.session].state is State.DRAINING)
            await lose(daemon, client)
        async with calling(daemon) as client:
            await client.say(wish(ready), sentence(), protocol.Flush(), "nonsense", protocol.Stop())
            await client.receive_until(protocol.Ready)
            engine.release()
            assert await client.hang_up() == (4000, "idle")
        assert client.all(protocol.Final)
        assert [error.code for error in client.all(protocol.Error)] == ["idle"]
        (closed,) = client.all(protocol.Closed)
        assert closed.received == len(sentence()) // 2
        await until(lambda: not len(daemon.sessions))


async def test_who_comes_back_early_takes_the_place_of_its_old_connection() -> None:
    """The daemon may learn of a lost connection later than the client does."""
    async with keeping(max_sessions=1) as daemon, calling(daemon) as old:
        ready = await begin(old, sentence())
        async with calling(daemon, f"/?resume={ready.session}") as new:
            await new.say(wish(ready))
            assert (await new.receive_until(protocol.Ready)).session == ready.session
            assert (await old.hang_up())[0] == 1006
            await new.finish()


@pytest.mark.parametrize("changes", [{"key": "wrong"}, {"key": "\u00e4"}, {"session": "ffffffff"}])
async def test_only_its_own_client_gets_a_session(changes: dict[str, Any]) -> None:
    """Whether it is the name or the key that is wrong, is not told; one may start anew."""
    async with keeping() as daemon, lost(daemon, sentence()) as ready:
        async with calling(daemon) as client:
            await client.say(wish(ready, **changes))
            error = await client.receive_until(protocol.Error)
            assert (error.code, error.fatal) == ("bad_resume", False)
            assert "there is no such session" in error.message
            await client.say(protocol.Start())
            await client.receive_until(protocol.Ready)
        assert daemon.sessions.waiting == 1


@pytest.mark.parametrize(
    ("finals", "heard", "says"),
    [(99, 0, "what came after final 99"), (0, 10**9, f"only {len(sentence())} bytes were heard")],
)
async def test_a_client_that_knows_too_much_is_told(finals: int, heard: int, says: str) -> None:
    """Better than a gap that nobody sees."""
    async with keeping() as daemon, lost(daemon, sentence()) as ready:
        async with calling(daemon) as client:
            await client.say(wish(ready, finals, heard))
            assert says in (await client.receive_until(protocol.Error)).message
        assert daemon.sessions.waiting == 1


async def test_a_seat_does_not_wait_for_ever() -> None:
    async with serving(ScriptedEngine(), resume_seconds=0.2) as daemon:
        async with lost(daemon, sentence()):
            await until(lambda: not len(daemon.sessions))
        assert not daemon.scheduler.stats().running


async def test_a_lost_session_gives_way_to_a_new_one() -> None:
    """The number of sessions is bounded, and clients that are connected come first."""
    async with keeping(max_sessions=1) as daemon, lost(daemon, sentence()) as ready:
        assert await talk(daemon)
        assert not daemon.sessions.holds(ready.session, "")


async def test_of_lost_sessions_no_more_give_way_than_must(tmp_path: Path) -> None:
    """The longest lost does, though its transcript still awaits finals."""
    engine = ScriptedEngine(held=True)
    settings: dict[str, Any] = {"max_sessions": 2, "transcripts_dir": str(tmp_path)}
    async with (
        keeping(engine, **settings) as daemon,
        lost(daemon, sentence()) as first,
        lost(daemon, sentence()) as second,
        calling(daemon) as client,
    ):
        await begin(client, b"")
        assert daemon.sessions[first.session].state is State.UNATTENDED
        assert daemon.sessions[second.session].state is State.DETACHED


async def test_who_has_left_finals_to_be_written_has_not_left(tmp_path: Path) -> None:
    """Else work would pile up behind clients that come, talk and go."""
    engine = ScriptedEngine(held=True)
    async with serving(engine, max_sessions=1, transcripts_dir=str(tmp_path)) as daemon:
        async with calling(daemon) as client:
            await client.say(protocol.Start(partials=False), sentence())
            await until(engine.entered.is_set)
            client.socket.transport.abort()
        await until(lambda: daemon.sessions.finishing == 1 and not daemon.admission.admitted)
        assert not daemon.health.ready
        engine.release()
        await until(lambda: daemon.health.ready)


async def test_ones_own_lost_session_gives_way_before_anothers(tokens: str) -> None:
    """Whoever loses connections all the time pushes out nobody else's."""
    settings: dict[str, Any] = {"max_sessions": 2, "tokens_file": tokens}
    async with (
        keeping(**settings) as daemon,
        lost(daemon, sentence(), **bearer(ALICE)) as alices,
        lost(daemon, sentence(), **bearer(BOB)) as bobs,
        calling(daemon, **bearer(BOB)) as client,
    ):
        await begin(client, b"")
        assert daemon.sessions.holds(alices.session, "alice")
        assert not daemon.sessions.holds(bobs.session, "bob")


@pytest.mark.parametrize("keys", [[], ["wrong"]])
async def test_who_is_let_in_to_resume_starts_nothing_without_room(keys: list[str]) -> None:
    async with keeping(max_sessions=1) as daemon, calling(daemon) as old:
        ready = await begin(old, sentence())
        async with calling(daemon, f"/?resume={ready.session}") as new:
            for key in keys:
                await new.say(wish(ready, key=key))
                assert (await new.receive_until(protocol.Error)).code == "bad_resume"
            await new.say(protocol.Start(), sentence())
            assert await new.hang_up() == (1013, "try again later")
        error = new.heard[-1]
        assert isinstance(error, protocol.Error)
        assert (error.code, error.fatal) == ("busy", True)
        assert "all 1 sessions are taken" in error.message
        assert not new.all(protocol.Ready)
        assert total(daemon.metrics.started) == len(daemon.sessions) == 1
        assert total(daemon.metrics.refused) == total(daemon.metrics.refused.labels("full")) == 1
        await until(lambda: len(daemon.admission.admitted) == 1)
        await old.finish()


async def test_who_is_let_in_to_resume_may_start_where_there_is_room() -> None:
    async with keeping(max_sessions=2) as daemon, calling(daemon) as old:
        ready = await begin(old, sentence())
        async with calling(daemon, f"/?resume={ready.session}") as new:
            await new.finish(protocol.Start(), sentence())
            assert await new.hang_up() == (1000, "")
        assert not new.all(protocol.Error)
        assert total(daemon.metrics.started) == 2


async def test_anothers_session_opens_no_door(tokens: str) -> None:
    settings: dict[str, Any] = {"max_sessions": 1, "tokens_file": tokens}
    async with keeping(**settings) as daemon, calling(daemon, **bearer(ALICE)) as old:
        ready = await begin(old, sentence())
        door = f"/?resume={ready.session}"
        assert (await refusal(daemon, door, **bearer(BOB))).status_code == 503
        async with calling(daemon, door, **bearer(ALICE)) as new:
            await new.say(wish(ready))
            await new.receive_until(protocol.Ready)


@pytest.mark.parametrize("resumable", [False, True])
async def test_who_does_not_wish_to_come_back_is_forgotten(resumable: bool) -> None:
    """A close frame is a decision, too."""
    async with keeping() as daemon:
        async with calling(daemon) as client:
            await client.say(protocol.Start(resumable=resumable), sentence())
            assert ((await client.receive_until(protocol.Ready)).key is None) is not resumable
            if not resumable:
                client.socket.transport.abort()
        await until(lambda: not len(daemon.sessions))
        assert daemon.sessions.waiting == 0


async def test_where_nothing_is_kept_there_is_no_key() -> None:
    async with serving(ScriptedEngine(), resume_seconds=0.0) as daemon, calling(daemon) as client:
        ready = await begin(client, b"")
        assert (ready.key, ready.limits.resume_seconds) == (None, 0.0)


async def test_what_is_safe_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a client need not keep all its audio for a resumption."""
    monkeypatch.setattr("daemon.sessions.connection.ACKNOWLEDGE_EVERY", 0.0)
    async with keeping() as daemon, calling(daemon) as client:
        await begin(client, sentence())
        assert (await client.receive_until(protocol.Heard)).bytes == len(sentence())
        await client.say(b"\0\0\0")
        assert (await client.receive_until(protocol.Heard)).bytes == len(sentence()) + 3


async def test_the_token_belongs_to_the_session(tokens: str) -> None:
    async with (
        keeping(tokens_file=tokens) as daemon,
        lost(daemon, sentence(), **bearer(ALICE)) as ready,
    ):
        async with calling(daemon, **bearer(BOB)) as client:
            await client.say(wish(ready))
            assert (await client.receive_until(protocol.Error)).code == "bad_resume"
        async with calling(daemon, **bearer(ALICE)) as client:
            await client.say(wish(ready))
            await client.receive_until(protocol.Ready)
