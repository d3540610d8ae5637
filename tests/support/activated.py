"""A daemon with a scripted engine, on the sockets that its parent hands over: `python -m tests.support.activated`."""

import asyncio
import os

from daemon.config import Config
from daemon.monitoring.systemd_notify import Notifier, inherited_sockets
from daemon.serve import serve
from daemon.server import Daemon
from tests.support.fakes import ScriptedEngine


async def main() -> None:
    """Serve until SIGTERM."""
    sockets = inherited_sockets(os.environ, os.getpid())
    assert sockets, "nothing was handed over"
    await serve(Daemon(Config(), ScriptedEngine, inherited=sockets), Notifier(), Config)


asyncio.run(main())
