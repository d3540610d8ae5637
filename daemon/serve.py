"""The verb `serve`: configuration, log, engine and server put together. No policy of its own."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import config

if TYPE_CHECKING:
    from daemon.server import Daemon

SUMMARY = "run the captioning daemon"

TOPOLOGY = Path("/sys/devices/system/cpu")

# Turns that a worker thread of torch waits in a loop before it sleeps (libgomp reads it when torch is
# imported). Its default suits a machine that it has to itself; beside another busy program threads then burn
# the very cores that the slower ones need. An utterance of 5 s, base, two cores, default against this:
# alone 0.465 and 0.484 s, beside one busy core 1.1 … 2.1 and 0.87 s.
SPINS = "1000"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag for each key of the configuration."""
    config.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. 0: stopped as asked; 1: cannot serve; 2: wrong settings."""
    try:
        settings = config.read(vars(args), os.environ)
    except config.ConfigError as error:
        return _fail(str(error), 2)
    begin_log(settings.log_level)
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    # Help and wrong settings are answered without the seconds that torch takes to import.
    from daemon.server import Daemon, ListenError  # noqa: PLC0415
    from model.engine import Engine  # noqa: PLC0415
    from model.load import ModelError  # noqa: PLC0415
    from model.start import start  # noqa: PLC0415

    def load_engine() -> Engine:
        threads = settings.threads or physical_cores()
        return start(
            settings.model,
            device=settings.device,
            threads=threads,
            slots=settings.slots,
            drafter=settings.drafter,
            precision=settings.precision,
        )

    async def main() -> None:
        await serve(Daemon(settings, load_engine))

    try:
        asyncio.run(main())
    except (ListenError, ModelError) as error:
        return _fail(str(error), 1)
    return 0


def begin_log(level: str) -> None:
    """Log to standard error from `level` ("debug", "info", …) on.

    What the websocket library says of every connection is shown from warnings on, or for debugging.
    """
    least = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(
        stream=sys.stderr,
        level=least,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    quieter = least if least == logging.DEBUG else max(least, logging.WARNING)
    logging.getLogger("websockets").setLevel(quieter)


async def serve(daemon: "Daemon") -> None:
    """Run `daemon` until a signal asks it to stop; a second one insists."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, daemon.stop)
    try:
        await daemon.start()
        await daemon.run()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def physical_cores(topology: Path = TOPOLOGY) -> int:
    """Cores that this process may use, hardware threads of one core counted once.

    Where the kernel tells no topology every usable CPU counts as a core.
    """
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = topology / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        cores.add(siblings.read_text() if siblings.is_file() else str(cpu))
    return len(cores)


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"captiond serve: {message}\n")
    return status
