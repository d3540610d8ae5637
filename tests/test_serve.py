import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from clients.demo import READY
from clients.stream import connect
from daemon import cli
from daemon.config import Config
from daemon.monitoring.systemd_notify import Notifier
from daemon.serve import is_loopback, physical_cores, serve
from daemon.server import Daemon
from model.checkpoints.load import load
from model.drafting.drafter_files import save_network
from streaming.protocol import Ready, Start
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.python import ROOT
from tests.support.tiny_drafters import tiny_parallel
from tests.support.tiny_files import save_transformers
from tests.support.wire import calling


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_it(number: signal.Signals, caplog: pytest.LogCaptureFixture) -> None:
    daemon = Daemon(Config(port=0), ScriptedEngine)
    with caplog.at_level(logging.INFO, logger="daemon"):
        running = asyncio.create_task(serve(daemon, Notifier(), Config))
        await asyncio.wait_for(daemon.ready.wait(), PATIENCE)
        assert f"ready on ws://127.0.0.1:{daemon.port} (model scripted, " in caplog.text
        assert READY.search(caplog.text.encode())  # what `captiond demo` waits for
    async with calling(daemon) as client:
        await client.say(Start())
        await client.receive_until(Ready)
        os.kill(os.getpid(), number)
        assert (await client.hang_up())[0] == 1001
    await asyncio.wait_for(running, PATIENCE)
    with pytest.raises(ConnectionClosed):
        await client.say(Start())


async def test_a_drafter_is_taken_along_and_clients_are_told(tmp_path: Path) -> None:
    model, file = tmp_path / "tiny", tmp_path / "swift.safetensors"
    model.mkdir()
    target = load(str(save_transformers(model))).fingerprint
    save_network(file, tiny_parallel(), target=target, acceptance=[0.9] * 4)
    command = ["-m", "daemon", "serve", "--port", "0", "--device", "cpu", "--threads", "1"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command, "--model", str(model), "--drafter", str(file)),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while (said := READY.search(line := await process.stderr.readline())) is None:
                assert line, "the daemon ended before it was ready"
        assert b"(model tiny, drafter swift, " in line
        async with connect(said[1].decode(), Start(language="en")) as captions:
            assert captions.ready.drafter == "swift"
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0


def test_serve_explains_a_model_that_cannot_be_had(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--port", "0", "--model", "no such model"]) == 1
    error = [line for line in capsys.readouterr().err.splitlines() if "captiond serve:" in line]
    assert len(error) == 1
    assert "no such model" in error[0]


def test_serve_explains_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["serve", "--port", str(port)]) == 1
    error = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1, port {port}" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("siblings", "cores"),
    [
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, 2),
        ({0: "0", 1: "1", 2: "2", 3: "3"}, 4),
        ({}, 4),
        ({0: "0-1", 1: "0-1"}, 3),
    ],
)
def test_hardware_threads_of_one_core_count_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, siblings: dict[int, str], cores: int
) -> None:
    """A decoder gains nothing from two threads on one core's arithmetic units."""
    for cpu, text in siblings.items():
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert physical_cores(tmp_path) == cores


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)],
)
def test_who_can_reach_an_address(host: str, *, alone: bool) -> None:
    assert is_loopback(host) is alone
