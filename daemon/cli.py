"""The command `captiond`: finds the verb, imports its module alone and runs it.

Nothing is imported before it is asked for, so that `captiond --help` answers at once and a
client-only installation needs no torch. This is the only file of the daemon that names the
clients' modules.
"""

import argparse
import importlib
import signal
import sys
from importlib import metadata
from typing import NoReturn, Protocol, cast

VERBS = {
    "demo": ("clients.demo", "start a daemon, caption the bundled sample live, stop"),
    "serve": ("daemon.serve", "run the captioning daemon"),
    "mic": ("clients.mic", "caption a microphone, live"),
    "file": ("clients.file", "caption audio files, or raw audio from standard input"),
    "status": ("clients.status", "say how a running daemon is"),
    "models": ("daemon.models", "list the models and where each would come from"),
    "protocols": ("daemon.protocols", "list the protocols that the daemon speaks, and where"),
    "train": ("model.training.train", "train a drafter for a model on your own audio"),
    "drafter": (
        "model.training.inspect_drafter",
        "inspect a drafter's file, or evaluate it on audio",
    ),
    "bench": (
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
    "safetensors": "daemon",
    "prometheus_client": "daemon",
    "sounddevice": "mic",
    "soxr": "daemon",
    "tokenizers": "daemon",
    "torch": "daemon",
    "tqdm": "training",
    "transformers": "daemon",
    "webrtcvad": "daemon",
    "whisper_normalizer": "bench",
}


class Verb(Protocol):
    """What a verb's module offers. SUMMARY is the sentence that `VERBS` shows."""

    SUMMARY: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's flags."""

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
    name, summary = VERBS[verb]
    # A module satisfies the protocol, which the type of import_module cannot say.
    module = cast("Verb", importlib.import_module(name))
    parser = argparse.ArgumentParser(
        prog=f"captiond {verb}", description=summary[0].upper() + summary[1:] + "."
    )
    module.add_arguments(parser)
    return module.run(parser.parse_args(arguments))


def _explain(arguments: list[str]) -> NoReturn:
    """Help, version, or what is wrong: argparse exits in each case, for no verb was given."""
    parser = argparse.ArgumentParser(
        prog="captiond", description="Captions live speech.", epilog="captiond VERB --help has more"
    )
    parser.add_argument("--version", action="version", version=f"captiond {_version()}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, (_, summary) in VERBS.items():
        verbs.add_parser(verb, help=summary, add_help=False)
    parser.parse_args(arguments)
    parser.error("the verb comes first")


def _version() -> str:
    try:
        return metadata.version("captiond")
    except metadata.PackageNotFoundError:
        return "(a checkout that is not installed)"
