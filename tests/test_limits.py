"""What holds on the wire beside the protocol: tokens, limits and reload, over real sockets."""

import asyncio
import importlib.util
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from daemon.config import Config, ConfigError
from daemon.monitoring.metrics import total
from daemon.monitoring.systemd_notify import Notifier
from daemon.net.listener import SPARE_CONNECTIONS
from daemon.serve import reload
from streaming.protocol import Closed, Error, Final, Flush, Flushed, Ready, Start, Stop
from streaming.silero import network
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.wire import (
    ALICE,
    BOB,
    bearer,
    calling,
    frames,
    get,
    half_a_sentence,
    refusal,
    sentence,
    serving,
    speech,
    talk,
    until,
)


async def test_a_token_opens_the_door_and_is_logged_by_its_label(
    tokens: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with serving(ScriptedEngine(), tokens_file=tokens) as daemon:
            assert (await refusal(daemon)).status_code == 401
            assert (await refusal(daemon, **bearer(f"{ALICE}x"))).status_code == 401
            assert (await get(daemon, "/metrics"))[0] == 401
            assert (await get(daemon, "/healthz"))[0] == 401
            assert (await get(daemon, "/livez"))[0] == (await get(daemon, "/readyz"))[0] == 200
            async with calling(daemon, **bearer(ALICE)) as client:
                await client.finish(Start(), sentence())
            await until(lambda: not len(daemon.sessions))
            assert (
                total(daemon.metrics.refused) == total(daemon.metrics.refused.labels("token")) == 2
            )
    said = "\n".join(
        record.getMessage() for record in caplog.records if "websockets" not in record.name
    )
    assert "(token alice)" in said
    assert ALICE not in said


async def test_a_token_has_its_share_of_the_sessions(tokens: str) -> None:
    settings: dict[str, Any] = {"tokens_file": tokens, "max_sessions_per_token": 1}
    async with serving(ScriptedEngine(), **settings) as daemon, calling(daemon, **bearer(ALICE)):
        assert (await refusal(daemon, **bearer(ALICE))).status_code == 429
        async with calling(daemon, **bearer(BOB)) as client:
            await client.say(Start())
            await client.receive_until(Ready)


async def test_a_web_page_elsewhere_is_kept_out_unless_listed() -> None:
    allowed = ("https://example.org",)
    async with serving(ScriptedEngine(), allowed_origins=allowed) as daemon:
        assert (await refusal(daemon, origin="https://evil.example")).status_code == 403
        own = f"http://127.0.0.1:{daemon.port}"
        for origin in (own, *allowed):
            async with calling(daemon, origin=origin) as client:
                await client.say(Start())
                await client.receive_until(Ready)


@pytest.mark.parametrize(
    ("settings", "end", "says"),
    [
        ({"idle_seconds": 0.3}, (4000, "idle"), "idle"),
        ({"max_session_seconds": 0.3}, (4001, "time limit"), "time_limit"),
    ],
)
async def test_a_session_whose_time_is_over_ends_with_all_that_was_spoken(
    settings: dict[str, Any], end: tuple[int, str], says: str
) -> None:
    async with serving(ScriptedEngine(), **settings) as daemon, calling(daemon) as client:
        await client.say(Start(partials=False), sentence())
        assert await client.hang_up() == end
        (error,) = client.all(Error)
        assert (error.code, error.fatal) == (says, True)
        (closed,) = client.all(Closed)
        assert client.heard[-1] == closed
        assert closed.finals == len(client.all(Final)) > 0


async def test_who_sends_nothing_more_has_the_last_words_and_goes_on() -> None:
    """As if a pause had come. No sample is lost, and session time stands still meanwhile."""
    async with (
        serving(ScriptedEngine(), no_audio_seconds=0.2) as daemon,
        calling(daemon) as client,
    ):
        await client.say(Start(partials=False), half_a_sentence())
        final = await client.receive_until(Final)
        assert final.end == len(half_a_sentence()) / 32_000
        await client.say(sentence()[len(half_a_sentence()) :], Stop())
        await client.hear_all()
        again = client.all(Final)[1]
        assert again.start >= final.end
        (closed,) = client.all(Closed)
        assert closed.received == len(sentence()) // 2


async def test_an_empty_frame_is_a_sign_of_life() -> None:
    """For clients that send no sound while nobody speaks."""
    async with serving(ScriptedEngine(), idle_seconds=1.5) as daemon, calling(daemon) as client:
        await client.say(Start(partials=False), sentence())
        for _ in range(30):
            await asyncio.sleep(0.1)  # in all, twice as long
            await client.say(b"")
        assert len(daemon.sessions) == 1
        await client.finish()
        assert await client.hang_up() == (1000, "")
        assert not client.all(Error)


async def test_audio_is_taken_no_faster_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """By reading slower: nothing is dropped, and nothing refused."""
    monkeypatch.setattr("daemon.sessions.rate_limit.BURST", 1.0)
    clock = asyncio.get_running_loop().time
    async with serving(ScriptedEngine(), max_audio_rate=40.0) as daemon, calling(daemon) as client:
        began = clock()
        await client.finish(Start(partials=False), *frames(speech()))
        seconds = len(speech()) / 32_000
        assert clock() - began >= (seconds - 2.0) / 40.0
        (closed,) = client.all(Closed)
        assert closed.received == len(speech()) // 2


async def test_a_reload_changes_much_and_drops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(ScriptedEngine(), max_sessions=1) as daemon:
        async with calling(daemon) as client:
            await client.say(Start(partials=False))
            await client.receive_until(Ready)
            assert (await refusal(daemon)).status_code == 503
            settings = Config(port=daemon.port, max_sessions=2, threads=7)
            with caplog.at_level(logging.INFO, logger="daemon"):
                reload(daemon, Notifier(), lambda: settings)
            assert await talk(daemon)
            await client.finish(sentence())
        assert "reloaded; changed: max_sessions" in caplog.text
        assert "wait for a restart: port, threads" in caplog.text


async def test_a_reload_reaches_the_port_and_the_transcripts(tmp_path: Path) -> None:
    """Also those of sessions that have begun: what is written next goes by the new sizes."""
    old = tmp_path / "2020-01-01T000000Z-00000000.jsonl"
    old.write_bytes(b"\n" * 2**21)
    settings: dict[str, Any] = {"max_sessions": 1, "transcripts_dir": str(tmp_path)}
    async with serving(ScriptedEngine(), **settings) as daemon, calling(daemon) as client:
        assert daemon.listener.most == 1 + SPARE_CONNECTIONS
        await client.say(Start(partials=False), sentence(), Flush())
        await client.receive_until(Flushed)
        assert old.name in parts(tmp_path)
        sizes: dict[str, Any] = {"transcripts_file_mb": 1e-4, "transcripts_keep_mb": 1.0}
        daemon.reload(replace(daemon.config, max_sessions=5, **sizes))
        assert daemon.listener.most == 5 + SPARE_CONNECTIONS
        await client.finish(sentence())
    assert old.name not in parts(tmp_path)
    assert len(parts(tmp_path)) > 1


def parts(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.jsonl")]


class Listening(Notifier):
    """A manager that keeps what it is told first each time."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def _tell(self, *fields: str) -> None:
        self.told.append(fields[0])


async def test_a_reload_tells_of_no_model_before_there_is_one() -> None:
    engine, systemd_notify = ScriptedEngine(warm=False), Listening()
    async with serving(engine, warm=False) as daemon:
        settings = replace(daemon.config, max_sessions=3)
        reload(daemon, systemd_notify, lambda: settings)
        assert systemd_notify.told == []
        assert daemon.config.max_sessions == 3
        engine.finish_warm_up()
        await asyncio.wait_for(daemon.ready.wait(), PATIENCE)
        reload(daemon, systemd_notify, lambda: settings)
        assert systemd_notify.told == ["RELOADING=1", "READY=1"]


async def test_a_reload_has_an_end_whatever_becomes_of_it() -> None:
    """Or systemd would wait for it and stop the service."""

    def read() -> Config:
        raise ZeroDivisionError

    systemd_notify = Listening()
    async with serving(ScriptedEngine()) as daemon:
        with pytest.raises(ZeroDivisionError):
            reload(daemon, systemd_notify, read)
        assert systemd_notify.told == ["RELOADING=1", "READY=1"]
        assert await talk(daemon)


async def test_a_wrong_file_changes_nothing(tokens: str, caplog: pytest.LogCaptureFixture) -> None:
    def unreadable() -> Config:
        raise ConfigError("captiond.toml is not TOML: line 3")

    async with serving(ScriptedEngine(), tokens_file=tokens) as daemon:
        before = daemon.config
        reload(daemon, Notifier(), unreadable)
        reload(
            daemon,
            Notifier(),
            lambda: Config(port=0, tokens_file=f"{tokens}.absent", max_sessions=1),
        )
        assert daemon.config is before
        assert (await refusal(daemon)).status_code == 401
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert all("everything stays as it was" in error for error in errors)


async def test_a_detector_that_cannot_be_had_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """New sessions would fail one by one."""
    network.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    async with serving(ScriptedEngine()) as daemon:
        before = daemon.config
        reload(daemon, Notifier(), lambda: replace(before, vad="silero"))
        assert daemon.config is before
        assert "vad = webrtc" in caplog.text
        assert await talk(daemon)


async def test_tokens_are_read_again(tokens: str) -> None:
    async with serving(ScriptedEngine(), tokens_file=tokens) as daemon:
        await asyncio.to_thread(Path(tokens).write_text, f"bob {BOB}\n")
        daemon.reload(daemon.config)
        assert (await refusal(daemon, **bearer(ALICE))).status_code == 401
        async with calling(daemon, **bearer(BOB)):
            pass
