"""The flags of the verb `serve`, and what it does before torch is imported. Needs no torch."""

import argparse
import faulthandler
import logging
import os
import sys

from daemon import config
from daemon.monitoring import log

# Turns that a worker thread of torch waits in a loop before it sleeps (libgomp reads it when torch is
# imported). Its default suits a machine that torch has to itself; beside another busy program threads then
# burn the very cores that the slower ones need. An utterance of 5 s, base, two cores, default against this:
# alone 0.465 and 0.484 s, beside one busy core 1.1 … 2.1 and 0.87 s.
SPINS = "1000"

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag for each key of the configuration."""
    parser.epilog = (
        "Each of these may also stand in the file, or in a variable such as CAPTIOND_PORT. SIGTERM "
        "and Ctrl-C deliver what was spoken and end the daemon, a second one ends it at once; SIGHUP "
        "reads file, tokens and certificate again."
    )
    config.add_arguments(parser)


def prepare(args: argparse.Namespace) -> int:
    """Check the settings, begin the log, set what torch reads when it is imported. 2: wrong settings."""
    try:
        settings = config.read(vars(args), os.environ)
    except config.ConfigError as error:
        sys.stderr.write(f"captiond serve: {error}\n")
        return 2
    log.begin(settings.log_level, settings.log_format, os.environ)
    # On standard error: when the watchdog aborts, the log has what every thread was doing.
    faulthandler.enable(2)
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    logger.info("starting with the model %s; clients are welcome when it is loaded", settings.model)
    return 0
