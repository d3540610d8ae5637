"""The verb `serve`: the process. Configuration, log, signals, service manager, engine and server.

No policy of its own.
"""

import argparse
import asyncio
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from daemon import config
from daemon.monitoring import log
from daemon.monitoring.systemd_notify import Notifier, NotifierError, inherited_sockets
from daemon.net.listener import ListenError
from daemon.server import Daemon
from model.checkpoints.load import ModelError
from model.engine.build import build
from model.engine.engine import Engine
from streaming.silero import DetectorError
from streaming.vad import detector

TOPOLOGY = Path("/sys/devices/system/cpu")

BEAT = 5.0  # seconds between two reports to the service manager, at most

logger = logging.getLogger(__name__)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. 0: stopped as asked; 1: cannot serve; 2: wrong settings."""

    def read() -> config.Config:
        return config.read(vars(args), os.environ)

    try:
        settings = read()
        notifier = Notifier.from_environment(os.environ, os.getpid())
        inherited = inherited_sockets(os.environ, os.getpid())
        if not (settings.tokens_file or inherited or is_loopback(settings.host)):
            logger.warning(
                "listening on %s without tokens_file: everybody who reaches the port can use this captiond",
                settings.host,
            )
        detector(settings.vad, settings.vad_mode)  # what is missing is told before anybody connects
        if asyncio.run(_main(settings, inherited, notifier, read)):
            # The interpreter must not be taken down under a thread that computes: torch would abort.
            logging.shutdown()
            os._exit(0)
    except (config.ConfigError, NotifierError) as error:
        return _fail(str(error), 2)
    except (DetectorError, ListenError, ModelError) as error:
        return _fail(str(error), 1)
    return 0


async def _main(
    settings: config.Config,
    inherited: list[socket.socket],
    notifier: Notifier,
    read: Callable[[], config.Config],
) -> bool:
    """Run a daemon to its end. Whether its engine's thread was abandoned in a computation."""

    def load_engine() -> Engine:
        return build(
            settings.model,
            device=settings.device,
            threads=settings.threads or physical_cores(),
            slots=settings.slots,
            drafter=settings.drafter,
            precision=settings.precision,
        )

    daemon = Daemon(settings, load_engine, inherited=inherited)
    await serve(daemon, notifier, read)
    return daemon.abandoned


async def serve(daemon: Daemon, notifier: Notifier, read: Callable[[], config.Config]) -> None:
    """Run `daemon` until a signal stops it; a second one ends it at once. SIGHUP reloads by `read`."""
    loop = asyncio.get_running_loop()
    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGTERM: lambda: _stop(daemon, notifier),
        signal.SIGINT: lambda: _stop(daemon, notifier),
        signal.SIGHUP: lambda: reload(daemon, notifier, read),
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    reporting = asyncio.create_task(_report(daemon, notifier))
    beating = asyncio.create_task(_beat(daemon, notifier))
    try:
        await daemon.start()
        await daemon.run()
        logger.info("stopped")
    finally:
        reporting.cancel()
        beating.cancel()
        await asyncio.wait([reporting, beating])
        for number in handlers:
            loop.remove_signal_handler(number)


def _stop(daemon: Daemon, notifier: Notifier) -> None:
    daemon.stop()
    notifier.stopping(daemon.health.sentence)


def reload(daemon: Daemon, notifier: Notifier, read: Callable[[], config.Config]) -> None:
    """Take over the settings of `read`; wrong ones are logged, and change nothing."""
    ready = daemon.ready.is_set()
    if ready:
        notifier.reloading()
    try:
        settings = read()
        changed, waiting = daemon.reload(settings)
    except config.ConfigError as error:
        logger.error("not reloaded, everything stays as it was: %s", error)  # noqa: TRY400 - it says all
    else:
        log.begin(settings.log_level, settings.log_format, os.environ)
        logger.info("reloaded; changed: %s", ", ".join(changed) or "nothing")
        if waiting:
            logger.warning("these wait for a restart: %s", ", ".join(waiting))
    finally:
        if ready:
            notifier.ready(daemon.health.sentence)


async def _report(daemon: Daemon, notifier: Notifier) -> None:
    """Report, once, that the daemon is ready."""
    await daemon.ready.wait()
    health = daemon.health
    logger.info(
        "ready on %s (model %s, drafter %s, %.1f s)",
        daemon.address,
        health.model,
        health.drafter or "none",
        health.uptime,
    )
    notifier.ready(health.sentence)


async def _beat(daemon: Daemon, notifier: Notifier) -> None:
    """Send status to the service manager, and feed its watchdog while decoding makes progress.

    An idle daemon feeds it, too. A stuck model does not, nor does a stuck event loop, in which this
    coroutine would not run.
    """
    pause = BEAT if notifier.watchdog is None else min(BEAT, notifier.watchdog / 3)
    starved = False
    while True:
        health = daemon.health
        notifier.status(health.sentence)
        if health.live:
            notifier.alive()
        elif not starved:
            logger.error("decoding is stuck: %s", health.sentence)
        starved = not health.live
        await asyncio.sleep(pause)


def physical_cores(topology: Path = TOPOLOGY) -> int:
    """Cores that this process may use, hardware threads of one core counted once.

    Where the kernel tells no topology every usable CPU counts as a core.
    """
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = topology / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        cores.add(siblings.read_text() if siblings.is_file() else str(cpu))
    return len(cores)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; names but localhost are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"captiond serve: {message}\n")
    return status
