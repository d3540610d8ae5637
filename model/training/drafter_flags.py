"""The flags of the verb `drafter`. Needs no torch."""

import argparse
from pathlib import Path

from model import flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's actions and their flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    inspect = actions.add_parser("inspect", help="show what the file says of itself")
    evaluate = actions.add_parser("evaluate", help="measure it against the model's own tokens")
    for action in (inspect, evaluate):
        action.add_argument("file", type=Path, help="a drafter that `captiond train` made")
    evaluate.add_argument(
        "--audio",
        nargs="+",
        type=Path,
        required=True,
        metavar="PLACE",
        help="as `captiond train --data` takes it; of manifests the rows with use=test",
    )
    evaluate.add_argument("--model", help="default: the one that it was trained for")
    evaluate.add_argument("--language", default="en", help="default: en")
    evaluate.add_argument("--limit", type=flags.count, help="recordings at most (default: all)")
