"""The service manager's side of the process: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3).

It knows nothing of sessions. Without a manager in the environment every call does nothing.
"""

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Self

logger = logging.getLogger(__name__)

FIRST_SOCKET = 3  # SD_LISTEN_FDS_START
PATIENCE = 1.0  # seconds for which a manager may leave a message unread


class NotifierError(Exception):
    """The manager's environment or sockets cannot be used; the message is a full sentence."""


class Notifier:
    """Notifications to the service manager, one datagram each.

    address: of its socket, NOTIFY_SOCKET; a leading @ means the abstract namespace. watchdog: seconds
    within which `alive` must be called again; None without a watchdog.
    """

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._failed = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], pid: int) -> Self:
        """The notifier of process `pid`. Raises NotifierError for a watchdog time that is no number."""
        watchdog = None
        if environment.get("WATCHDOG_USEC") and environment.get("WATCHDOG_PID", str(pid)) == str(
            pid
        ):
            if not environment["WATCHDOG_USEC"].isdecimal():
                raise NotifierError("WATCHDOG_USEC is not a number of microseconds")
            watchdog = int(environment["WATCHDOG_USEC"]) / 1e6
        return cls(environment.get("NOTIFY_SOCKET", ""), watchdog)

    def ready(self, status: str) -> None:
        """Start-up or reload is complete."""
        self._tell("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._tell(f"STATUS={status}")

    def reloading(self) -> None:
        """The configuration is being read; `ready` must follow."""
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell("RELOADING=1", f"MONOTONIC_USEC={microseconds}", "STATUS=reloading")

    def stopping(self, status: str) -> None:
        """The service is stopping."""
        self._tell("STOPPING=1", f"STATUS={status}")

    def alive(self) -> None:
        """Feed the watchdog."""
        if self.watchdog is not None:
            self._tell("WATCHDOG=1")

    def _tell(self, *fields: str) -> None:
        if not self._address:
            return
        message = "\n".join(" ".join(field.split()) for field in fields)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(PATIENCE)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._failed:
                logger.warning("the service manager cannot be told anything: %s", error)
            self._failed = True


def inherited_sockets(environment: Mapping[str, str], pid: int) -> list[socket.socket]:
    """The listening sockets that a manager opened for process `pid`; none without socket activation.

    Raises NotifierError for a socket that is no listening stream socket.
    """
    count = environment.get("LISTEN_FDS", "0")
    if environment.get("LISTEN_PID") != str(pid) or not count.isdecimal():
        return []
    sockets = []
    for descriptor in range(FIRST_SOCKET, FIRST_SOCKET + int(count)):
        try:
            inherited = socket.socket(fileno=descriptor)
            listens = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise NotifierError(
                f"descriptor {descriptor}, handed over for listening, is no socket: {error.strerror}"
            ) from None
        if not listens or inherited.type != socket.SOCK_STREAM:
            raise NotifierError(
                f"descriptor {descriptor}, handed over for listening, does not listen for streams: "
                "the socket unit needs ListenStream= and Accept=no"
            )
        os.set_inheritable(descriptor, False)
        sockets.append(inherited)
    return sockets
