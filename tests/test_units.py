"""The unit files and the sample configuration, held against systemd's own judgement and the code."""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon import cli, config
from daemon.config import Config
from daemon.monitoring.systemd_notify import Notifier
from daemon.net.listener import SPARE_CONNECTIONS
from daemon.serve import serve
from daemon.server import Daemon
from streaming.protocol import Flush, Start
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.python import ROOT
from tests.support.wire import calling, half_a_sentence, until

UNITS = ROOT / "systemd"
LEAST_EXPOSURE = 2.0

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs the Debian package systemd"
)


def installed(folder: Path, *units: str) -> list[str]:
    """Units as they are, but for a command that there is."""
    paths = [folder / Path(unit).name for unit in units]
    for unit, path in zip(units, paths, strict=True):
        text = (UNITS / unit).read_text()
        path.write_text(text.replace("/opt/captiond/venv/bin/captiond", "/bin/true"))
    return [str(path) for path in paths]


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False
    )


@needs_systemd
def test_systemd_finds_no_fault_with_the_units(tmp_path: Path) -> None:
    done = analyze("verify", *installed(tmp_path, "captiond.service", "captiond.socket"))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    done = analyze("verify", "--user", *installed(tmp_path, "user/captiond-mic.service"))
    assert "captiond-mic" not in done.stdout + done.stderr


@needs_systemd
def test_the_daemon_is_exposed_no_more_than_it_must_be() -> None:
    done = analyze("security", "--offline=true", str(UNITS / "captiond.service"))
    found = re.search(r"exposure level for captiond.service: ([0-9.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= LEAST_EXPOSURE


def said(key: str) -> int:
    """The number that the service's unit has for `key`."""
    text = (UNITS / "captiond.service").read_text()
    (number,) = re.findall(rf"^{key}=(\d+)$", text, re.MULTILINE)
    return int(number)


def test_a_stop_has_the_time_that_it_takes() -> None:
    """Pending finals first, then the model's last round: or systemd kills it in the middle."""
    assert said("TimeoutStopSec") > Config().shutdown_seconds + 10


def test_wrong_settings_are_not_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    """They stay wrong; the program tells them by a status of their own."""
    assert cli.main(["serve", "--vad-mode", "9"]) == said("RestartPreventExitStatus")
    assert "--vad-mode is '9'" in capsys.readouterr().err


def test_descriptors_do_not_run_out_before_sessions_do() -> None:
    """Each takes one, and three more for its transcript."""
    assert said("LimitNOFILE") >= 4 * config.bounds("max_sessions")[1] + SPARE_CONNECTIONS


def test_the_sample_configuration_has_every_key_with_its_default(tmp_path: Path) -> None:
    """Commented out, and true when the comments are taken away."""
    text = (UNITS / "captiond.toml").read_text(encoding="utf-8")
    lines = re.findall(r"^#(\w+) = (.*)$", text, re.MULTILINE)
    assert [key for key, _ in lines] == list(config.KEYS)
    for key, value in lines:
        assert value == json.dumps(config.KEYS[key].default)
    (tmp_path / "all.toml").write_text(re.sub(r"^#(\w+ = )", r"\1", text, flags=re.MULTILINE))
    assert config.read({"config": str(tmp_path / "all.toml")}, {}) == Config()
    assert config.read({"config": str(UNITS / "captiond.toml")}, {}) == Config()


def test_the_sample_configuration_explains_every_key() -> None:
    text = (UNITS / "captiond.toml").read_text(encoding="utf-8")
    for key in config.KEYS:
        restart = " (restart)" if key in config.FIXED else ""
        about = f"# {config.about(key).description}; {config.accepted(key)}{restart}\n#{key} = "
        assert about in text


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator["Inbox"]:
    opened = Inbox(tmp_path)
    yield opened
    opened.socket.close()


class Inbox:
    """What a service manager hears."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.address)
        self.socket.setblocking(False)
        self.fields: list[str] = []

    def read(self) -> list[str]:
        """Everything so far."""
        while True:
            try:
                self.fields += self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self.fields

    def count(self, field: str) -> int:
        return self.read().count(field)


async def test_the_manager_hears_of_it_all(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    engine = ScriptedEngine(warm=False)
    daemon = Daemon(Config(port=0), lambda: engine)
    systemd_notify = Notifier(inbox.address, watchdog=0.3)
    settings = Config(port=0, max_sessions=3, slots=9)
    running = asyncio.create_task(serve(daemon, systemd_notify, lambda: settings))
    await until(lambda: inbox.count("WATCHDOG=1") > 0)
    assert inbox.count("READY=1") == 0
    engine.finish_warm_up()
    await until(lambda: inbox.count("READY=1") == 1)
    caplog.set_level(logging.INFO, logger="daemon")
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: inbox.count("READY=1") == 2)
    assert inbox.fields.count("RELOADING=1") == 1
    assert daemon.health.full is False
    assert "reloaded; changed: max_sessions" in caplog.text
    assert "these wait for a restart: slots" in caplog.text
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, PATIENCE)
    assert inbox.count("STOPPING=1") == 1
    assert any("sessions" in field for field in inbox.fields if field.startswith("STATUS="))


async def test_the_watchdog_starves_when_decoding_is_stuck_but_not_idle(inbox: Inbox) -> None:
    """What systemd then does, is to abort and to start again."""
    engine = ScriptedEngine()
    daemon = Daemon(Config(port=0, stalled_after_seconds=0.2), lambda: engine)
    systemd_notify = Notifier(inbox.address, watchdog=0.06)
    running = asyncio.create_task(serve(daemon, systemd_notify, Config))
    await asyncio.wait_for(daemon.ready.wait(), PATIENCE)

    async def fed() -> None:
        """Three times more, from now on."""
        before = inbox.count("WATCHDOG=1")
        await until(lambda: inbox.count("WATCHDOG=1") >= before + 3)

    await fed()
    async with calling(daemon) as client:
        engine.hold()
        await client.say(Start(), half_a_sentence(), Flush())
        await until(lambda: daemon.status == "stalled")
        inbox.read()
        statuses = sum(field.startswith("STATUS=") for field in inbox.fields)
        before = inbox.fields.count("WATCHDOG=1")
        await until(
            lambda: sum(field.startswith("STATUS=") for field in inbox.read()) > statuses + 3
        )
        assert inbox.count("WATCHDOG=1") <= before + 1, "one may have been under way"
        assert "stalled" in inbox.fields[-1]
        engine.release()
        await fed()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, PATIENCE)


@pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None, reason="needs the Debian package systemd"
)
def test_a_socket_of_systemds_is_served(tmp_path: Path) -> None:
    """By the program as it is started, with a model that does not exist: how far it comes, it says."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = ["systemd-socket-activate", "-l", f"127.0.0.1:{port}", "-E", "PYTHONPATH"]
    command += [sys.executable, "-m", "tests.support.activated"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert "Listening on" in process.stderr.readline()
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
            client.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200 OK" in client.recv(9999)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        process.stderr.close()
