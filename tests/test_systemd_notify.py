import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.monitoring.systemd_notify import Notifier, NotifierError, inherited_sockets
from tests.support.python import python


@pytest.fixture(params=["path", "abstract"])
def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """What a service manager listens on, and its address as NOTIFY_SOCKET gives it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@captiond-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name[1:] if name.startswith("@") else name)
        receiver.settimeout(5)
        yield receiver, name


def test_each_call_is_one_datagram(inbox: tuple[socket.socket, str]) -> None:
    """Fields a line each, as sd_notify(3) has them."""
    receiver, address = inbox
    systemd_notify = Notifier(address, watchdog=3.0)
    systemd_notify.ready("2 sessions")
    assert receiver.recv(999) == b"READY=1\nSTATUS=2 sessions"
    systemd_notify.status("3 sessions")
    assert receiver.recv(999) == b"STATUS=3 sessions"
    systemd_notify.stopping("bye")
    assert receiver.recv(999) == b"STOPPING=1\nSTATUS=bye"
    systemd_notify.alive()
    assert receiver.recv(999) == b"WATCHDOG=1"


def test_a_reload_says_when_it_began(inbox: tuple[socket.socket, str]) -> None:
    """By the kernel's monotonic clock, as Type=notify-reload asks."""
    receiver, address = inbox
    before = time.clock_gettime(time.CLOCK_MONOTONIC)
    Notifier(address).reloading()
    after = time.clock_gettime(time.CLOCK_MONOTONIC)
    first, second, _ = receiver.recv(999).decode().splitlines()
    assert first == "RELOADING=1"
    began = int(second.removeprefix("MONOTONIC_USEC=")) / 1e6
    assert before - 1e-6 <= began <= after


def test_a_status_cannot_smuggle_in_a_field(inbox: tuple[socket.socket, str]) -> None:
    receiver, address = inbox
    Notifier(address).status("fine\nWATCHDOG=trigger")
    assert receiver.recv(999) == b"STATUS=fine WATCHDOG=trigger"


def test_without_a_watchdog_nobody_is_fed(inbox: tuple[socket.socket, str]) -> None:
    receiver, address = inbox
    systemd_notify = Notifier(address)
    systemd_notify.alive()
    systemd_notify.status("after")
    assert receiver.recv(999) == b"STATUS=after"


def test_a_manager_gone_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The service goes on without it."""
    systemd_notify = Notifier(str(tmp_path / "absent"))
    with caplog.at_level(logging.WARNING):
        systemd_notify.ready("a")
        systemd_notify.status("b")
    assert len(caplog.records) == 1


def test_without_a_manager_nothing_is_said() -> None:
    systemd_notify = Notifier.from_environment({}, pid=1)
    assert systemd_notify.watchdog is None
    systemd_notify.ready("nobody hears")


@pytest.mark.parametrize(
    ("environment", "watchdog"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": ""}, None),
    ],
)
def test_the_watchdog_names_a_process(environment: dict[str, str], watchdog: float | None) -> None:
    assert Notifier.from_environment(environment, pid=7).watchdog == watchdog


def test_a_watchdog_time_that_is_no_number_is_told() -> None:
    with pytest.raises(NotifierError, match="WATCHDOG_USEC"):
        Notifier.from_environment({"WATCHDOG_USEC": "soon"}, pid=7)


@pytest.mark.parametrize(
    "environment", [{}, {"LISTEN_FDS": "1", "LISTEN_PID": "8"}, {"LISTEN_FDS": "1"}]
)
def test_sockets_for_another_process_are_left_alone(environment: dict[str, str]) -> None:
    assert inherited_sockets(environment, pid=7) == []


def inherit(setup: str) -> str:
    """What a process finds whose descriptor 3 is what `setup` binds to the name `handed`."""
    script = f"""
import os, socket
{setup}
if handed.fileno() != 3:
    os.dup2(handed.fileno(), 3)
from daemon.monitoring.systemd_notify import NotifierError, inherited_sockets
from tests.support.python import python
environment = {{"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}}
try:
    (found,) = inherited_sockets(environment, os.getpid())
    print(found.family.name, found.fileno(), os.get_inheritable(3))
except NotifierError as error:
    print(error)
os._exit(0)
"""
    script = script.replace("os._exit", "import sys; sys.stdout.flush(); os._exit")
    return python("-c", script).strip()


def test_a_listening_socket_is_taken_over() -> None:
    """And kept from child processes."""
    assert inherit("handed = socket.create_server(('127.0.0.1', 0))") == "AF_INET 3 False"


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ("handed = socket.socket()", "does not listen"),
        ("handed = open('/dev/null')", "is no socket"),
    ],
)
def test_what_does_not_listen_is_told(setup: str, says: str) -> None:
    assert says in inherit(setup)
