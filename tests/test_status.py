import argparse
import asyncio
import json
import socket
from pathlib import Path

import pytest

from clients import status
from daemon.server import Daemon
from tests.support.fakes import ScriptedEngine
from tests.support.wire import calling, serving, talk


def arguments(url: str, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    status.add_arguments(parser)
    return parser.parse_args(["--url", url, *more])


async def ask(daemon: Daemon, path: str = "", *more: str) -> int:
    """The verb's exit status."""
    args = arguments(f"ws://127.0.0.1:{daemon.port}{path}", *more)
    return await asyncio.to_thread(status.run, args)


async def test_a_daemon_that_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(ScriptedEngine()) as daemon:
        await talk(daemon)
        async with calling(daemon):
            assert await ask(daemon) == 0
            text = capsys.readouterr().out
            assert await ask(daemon, "/v1", "--json") == 0
            figures = json.loads(capsys.readouterr().out)
    assert "status       ok\n" in text
    assert "model        scripted\n" in text
    assert "sessions     1; 1 so far\n" in text
    assert "audio        4 s heard\n" in text
    assert (figures["status"], figures["sessions"]) == ("ok", 1)


async def test_what_drafts_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    engine = ScriptedEngine()
    engine.drafter = "base"
    async with serving(engine) as daemon:
        await ask(daemon)
    assert "model        scripted, drafter base\n" in capsys.readouterr().out


async def test_a_daemon_not_well_is_another_status(capsys: pytest.CaptureFixture[str]) -> None:
    engine = ScriptedEngine(warm=False)
    async with serving(engine, warm=False) as daemon:
        assert await ask(daemon) == 1
        engine.finish_warm_up()
    assert "warming_up, takes no new session" in capsys.readouterr().out


async def test_the_token_opens_the_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("admin a-token-of-some-length")
    async with serving(ScriptedEngine(), tokens_file=str(tokens)) as daemon:
        monkeypatch.delenv("CAPTIOND_TOKEN", raising=False)
        assert await ask(daemon) == 2
        err = capsys.readouterr().err
        assert "wants a token" in err
        assert "variable CAPTIOND_TOKEN" in err
        assert "start one" not in err
        monkeypatch.setenv("CAPTIOND_TOKEN", "a-token-of-some-length")
        assert await ask(daemon) == 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense"])
def test_what_is_no_daemons_address(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.run(arguments(url)) == 2
    assert f"{url}: a daemon's URL looks like ws://" in capsys.readouterr().err


def test_daemon_absent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is no way to this machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:2")
    assert status.run(arguments("ws://127.0.0.1:1")) == 2
    err = capsys.readouterr().err
    assert "no daemon answers at ws://127.0.0.1:1 " in err
    assert "start one there" in err


def test_another_service_is_no_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        async def ask() -> int:
            work = asyncio.to_thread(status.run, arguments(f"ws://127.0.0.1:{port}"))
            request = asyncio.create_task(work)
            connection, _ = await asyncio.to_thread(server.accept)
            with connection:
                connection.recv(9999)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
                return await request

        assert asyncio.run(ask()) == 2
    assert "no captiond" in capsys.readouterr().err
