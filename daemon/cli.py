"""The command `captiond`: finds the verb, reads its flags, then imports its work and runs it.

Nothing is imported before it is needed, so that every --help answers at once and a client-only
installation needs no torch. This is the only file of the daemon that names the
clients' modules.
"""

import argparse
import importlib
import signal
import sys
from collections.abc import Callable
from importlib import metadata
from typing import NoReturn, Protocol, cast

# Each verb's module of flags, its module of work, and a sentence about it. Flags need no torch.
VERBS = {
    "demo": (
        "clients.demo",
        "clients.demo",
        "start a daemon, caption the bundled sample live, stop",
    ),
    "serve": ("daemon.serve_flags", "daemon.serve", "run the captioning daemon"),
    "mic": ("clients.mic", "clients.mic", "caption a microphone, live"),
    "file": (
        "clients.file",
        "clients.file",
        "caption audio files, or raw audio from standard input",
    ),
    "status": ("clients.status", "clients.status", "say how a running daemon is"),
    "models": (None, "daemon.models", "list the models and where each would come from"),
    "protocols": (
        "daemon.protocols",
        "daemon.protocols",
        "list the protocols that the daemon speaks, and where",
    ),
    "train": (
        "model.training.train_flags",
        "model.training.train",
        "train a drafter for a model on your own audio",
    ),
    "drafter": (
        "model.training.drafter_flags",
        "model.training.inspect_drafter",
        "inspect a drafter's file, or evaluate it on audio",
    ),
    "bench": (
        "model.bench.bench_flags",
        "model.bench.command",
        "measure this machine: engines, passes, block sizes, temperatures",
    ),
}

# The extra of pyproject.toml that brings each optional import.
EXTRAS = {
    "accelerate": "training",
    "datasets": "training",
    "huggingface_hub": "daemon",
    "jiwer": "bench",
    "matplotlib": "bench",
    "num2words": "daemon",
    "safetensors": "daemon",
    "prometheus_client": "daemon",
    "sounddevice": "mic",
    "soxr": "daemon",
    "text_to_num": "daemon",
    "tokenizers": "daemon",
    "torch": "daemon",
    "tqdm": "training",
    "transformers": "daemon",
    "webrtcvad": "daemon",
    "whisper_normalizer": "bench",
}


class Flags(Protocol):
    """What a module of flags offers.

    It may have a `prepare`, too, for what must be done before the work's imports: from the parsed
    arguments to 0, or to the exit status of a command line that is wrong.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's flags."""


class Work(Protocol):
    """What a module of work offers."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work; the result is the exit status."""


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns the exit status, 130 where Ctrl-C ended what no verb had in hand yet.

    Wrong usage, --help and --version exit by SystemExit.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] not in VERBS:
        _explain(arguments)
    verb, *rest = arguments
    try:
        return _run(verb, rest)
    except KeyboardInterrupt:  # such as during the seconds that torch takes to import
        return 128 + signal.SIGINT
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        sys.stderr.write(
            f"captiond {verb} needs the package {package}: "
            f"install captiond with its extra, captiond[{EXTRAS[package]}]\n"
        )
        return 1


def _run(verb: str, arguments: list[str]) -> int:
    flags, work, summary = VERBS[verb]
    parser = argparse.ArgumentParser(
        prog=f"captiond {verb}", description=summary[0].upper() + summary[1:] + "."
    )
    # A module satisfies its protocol, which the type of import_module cannot say.
    module = importlib.import_module(flags) if flags else None
    if module is not None:
        cast("Flags", module).add_arguments(parser)
    args = parser.parse_args(arguments)
    prepare: Callable[[argparse.Namespace], int] = getattr(module, "prepare", lambda _args: 0)
    return prepare(args) or cast("Work", importlib.import_module(work)).run(args)


def _explain(arguments: list[str]) -> NoReturn:
    """Help, version, or what is wrong: argparse exits in each case, for no verb was given."""
    parser = argparse.ArgumentParser(
        prog="captiond", description="Captions live speech.", epilog="captiond VERB --help has more"
    )
    parser.add_argument("--version", action="version", version=f"captiond {_version()}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, (_, _, summary) in VERBS.items():
        verbs.add_parser(verb, help=summary, add_help=False)
    parser.parse_args(arguments)
    parser.error("the verb comes first")


def _version() -> str:
    try:
        return metadata.version("captiond")
    except metadata.PackageNotFoundError:
        return "(a checkout that is not installed)"
