"""The flags of the verb `bench`. Needs no torch."""

import argparse
from pathlib import Path

from model import flags

SECTIONS = ("engines", "passes", "blocks", "temperature", "share")
OUTPUT = Path("docs") / "bench"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)} (default: all)"
    )
    parser.add_argument(
        "--audio",
        nargs="+",
        type=Path,
        default=[],
        metavar="PLACE",
        help="recordings of up to 30 s, directories of them, or lists (.txt, a path in each line)",
    )
    parser.add_argument(
        "--references", type=Path, metavar="TSV", help="path and transcript, divided by a tab"
    )
    parser.add_argument("--limit", type=flags.count, help="recordings at most (default: all)")
    parser.add_argument("--language", default="en", help="spoken in all of them (default: en)")
    _add_engine_arguments(parser)
    parser.add_argument("--repeats", type=flags.count, default=3, help="default: 3")
    parser.add_argument("--warm-ups", type=flags.natural, default=2, help="default: 2")
    parser.add_argument(
        "--output",
        type=Path,
        default=OUTPUT,
        help="files to write, without .json, .md and .svg (default: %(default)s)",
    )


def _add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="base", help="as `captiond serve` takes it")
    parser.add_argument(
        "--drafter", default="auto", help="as `captiond serve` takes it (default: auto)"
    )
    parser.add_argument(
        "--engines",
        type=lambda text: tuple(text.split(",")),
        metavar="NAME,…",
        help="of the section engines (default: all)",
    )
    parser.add_argument(
        "--assistant", metavar="MODEL", help="of transformers' assisted decoding (default: tiny)"
    )
    parser.add_argument(
        "--batch", type=flags.counts, default=(1, 4, 8), metavar="N,…", help="default: 1,4,8"
    )
    quality = parser.add_mutually_exclusive_group()
    quality.add_argument(
        "--alpha",
        type=flags.share,
        default=0.575,
        help="share of the simulated drafter's proposals to be accepted (default: 0.575, which is "
        "Whisper-Flash's)",
    )
    quality.add_argument(
        "--chance", type=flags.share, help="instead of --alpha: of each of its tokens being right"
    )
    parser.add_argument(
        "--block", type=flags.count, default=8, help="its candidates in a round (default: 8)"
    )
    parser.add_argument(
        "--shapes",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="NAME,…",
        help="of the section passes: sizes to time with random weights, besides the model",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--precision",
        choices=("float32", "int8"),
        default="float32",
        help="of captiond's target on the CPU; the engines int8 and int8-oracle run beside float32",
    )
    parser.add_argument("--threads", type=flags.count, help="of the CPU (default: torch's choice)")
