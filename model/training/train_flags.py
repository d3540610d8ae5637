"""The flags of the verb `train`. Needs no torch."""

import argparse
from pathlib import Path

from model import flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the drafter, and all of its training"
    )
    parser.add_argument(
        "--data",
        nargs="+",
        type=Path,
        default=[],
        metavar="PLACE",
        help="manifests (.tsv), lists (.txt, .lst), directories of audio such as LibriSpeech's, "
        "or datasets saved to disk; recordings of up to 30 s",
    )
    parser.add_argument(
        "--cache",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="what the model makes of the data; the first one is filled from --data, others are "
        "added as they are (default: cache, in --out)",
    )
    parser.add_argument("--model", default="base", help="as `captiond serve` takes it")
    parser.add_argument("--language", default="en", help="spoken in all of it (default: en)")
    parser.add_argument(
        "--licence", default="not stated", help="of data that does not state its own"
    )
    parser.add_argument(
        "--perturb",
        action="store_true",
        help="change each passage to a random speed (0.9, 1 or 1.1) and level",
    )
    _add_recipe_arguments(parser)


def _add_recipe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kind",
        choices=("parallel", "speech"),
        default="parallel",
        help="of a drafter: it names all candidates at once (Whisper-Flash), or one after another "
        "(EAGLE-ASR's Speech-Draft); default: %(default)s",
    )
    parser.add_argument(
        "--layers",
        type=flags.numbers,
        metavar="N,…",
        help="the model's decoder blocks that the layers begin as, the first one being 0 (default: "
        "the last three; of a Speech-Draft, which has one layer, the last)",
    )
    parser.add_argument("--steps", type=flags.count, default=4000, help="default: %(default)s")
    parser.add_argument(
        "--batch", type=flags.count, default=4, help="passages in a step of a process (default: 4)"
    )
    parser.add_argument(
        "--anchors",
        type=flags.count,
        default=16,
        help="blocks of a passage in a step (default: 16)",
    )
    parser.add_argument(
        "--rate",
        type=flags.positive,
        default=6e-4,
        help="highest learning rate (default: %(default)s)",
    )
    parser.add_argument("--block", type=flags.count, default=8, help="candidates (default: 8)")
    parser.add_argument(
        "--coverage",
        type=flags.coverage,
        default=0.999,
        help="share of the data's tokens that can be proposed; 1 for the model's whole "
        "vocabulary (default: %(default)s)",
    )
    parser.add_argument(
        "--soft",
        type=flags.share,
        default=0.0,
        help="share of the loss that is learned from the model's distributions rather than from its "
        "choices (default: 0)",
    )
    parser.add_argument(
        "--masked",
        type=flags.amount,
        default=0.0,
        help="short spans of audio that are put out in training, per two seconds (default: 0)",
    )
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
