"""The verb `bench`: engines, passes, blocks and temperatures measured on this machine.

Results are written after each section, so that an interrupted run keeps what it finished.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.bench.benchmark import Plan

SUMMARY = "measure this machine: engines, passes, block sizes, temperatures"

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
    parser.add_argument("--limit", type=_count, help="recordings at most (default: all)")
    parser.add_argument("--language", default="en", help="spoken in all of them (default: en)")
    _add_engine_arguments(parser)
    parser.add_argument("--repeats", type=_count, default=3, help="default: 3")
    parser.add_argument("--warm-ups", type=_natural, default=2, help="default: 2")
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
        "--batch", type=_counts, default=(1, 4, 8), metavar="N,…", help="default: 1,4,8"
    )
    quality = parser.add_mutually_exclusive_group()
    quality.add_argument(
        "--alpha",
        type=_share,
        default=0.575,
        help="share of the simulated drafter's proposals to be accepted (default: 0.575, which is "
        "Whisper-Flash's)",
    )
    quality.add_argument(
        "--chance", type=_share, help="instead of --alpha: of each of its tokens being right"
    )
    parser.add_argument(
        "--block", type=_count, default=8, help="its candidates in a round (default: 8)"
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
    parser.add_argument("--threads", type=_count, help="of the CPU (default: torch's choice)")


def run(args: argparse.Namespace) -> int:
    """Measure and write. 0: done; 1: something needed is missing or unreadable; 2: wrong usage."""
    wanted = args.sections or list(SECTIONS)
    wrong = _misuse(args, wanted)
    if wrong is not None:
        return _fail(wrong, 2)
    from torch import OutOfMemoryError  # noqa: PLC0415

    from model.bench.clips import BenchError  # noqa: PLC0415
    from model.bench.report import write  # noqa: PLC0415
    from model.checkpoints.load import ModelError  # noqa: PLC0415

    try:
        device = _prepare(args)
        for model, section, figures in _measured(args, wanted, device):
            for path in write(args.output, model, section, figures, device):
                tell(f"{section}: written to {path}")
    except (BenchError, ModelError) as error:
        return _fail(str(error), 1)
    except OutOfMemoryError as error:
        return _fail(f"the device's memory is too small, take smaller batches: {error}", 1)
    return 0


def _misuse(args: argparse.Namespace, wanted: list[str]) -> str | None:
    """The error in the command line, if any."""
    unknown = sorted(set(wanted) - set(SECTIONS))
    if unknown:
        return f"no section {', '.join(unknown)}: choose from {', '.join(SECTIONS)}"
    if not args.audio and set(wanted) != {"passes"}:
        return "name recordings with --audio: only the section passes runs without"
    # Help and the errors above need none of the seconds that torch takes to import.
    from model.bench.benchmark import ENGINES  # noqa: PLC0415
    from model.checkpoints.random_weights import SHAPES  # noqa: PLC0415
    from model.engine.batch_sizes import BUCKETS  # noqa: PLC0415

    for given, known, what in (
        (args.engines or (), ENGINES, "engine"),
        (args.shapes, tuple(SHAPES), "shape"),
    ):
        unknown = sorted(set(given) - set(known))
        if unknown:
            return f"no {what} {', '.join(unknown)}: choose from {', '.join(known)}"
    if args.batch[-1] > BUCKETS[-1]:
        return f"batches have at most {BUCKETS[-1]} utterances, not {args.batch[-1]}"
    return None


def _prepare(args: argparse.Namespace) -> str:
    """Set device and threads, and raise before any work the errors that would spoil it."""
    import torch  # noqa: PLC0415
    from transformers.utils import logging  # noqa: PLC0415

    from model.bench.clips import BenchError  # noqa: PLC0415
    from model.bench.report import read  # noqa: PLC0415
    from model.bench.word_errors import normalised  # noqa: PLC0415
    from model.engine.build import check_int8  # noqa: PLC0415

    logging.set_verbosity_error()  # its advice on `generate` would hide the progress
    normalised("")  # raises for a missing package
    read(args.output.with_suffix(".json"))
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise BenchError("no CUDA device can be used here: take --device cpu, or check the driver")
    if args.device == "auto":
        wanted = torch.cuda.is_available() and args.precision != "int8"
        args.device = "cuda" if wanted else "cpu"
    if args.precision == "int8":
        check_int8(args.device)
    return str(args.device)


def _measured(
    args: argparse.Namespace, wanted: list[str], device: str
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Model, section and figures of each section, when it is finished."""
    import torch  # noqa: PLC0415

    from model.bench.benchmark import Benchmark  # noqa: PLC0415
    from model.bench.clips import read_clips  # noqa: PLC0415
    from model.bench.passes import passes  # noqa: PLC0415
    from model.bench.sections import SECTIONS as OVER_CLIPS  # noqa: PLC0415
    from model.checkpoints.load import load  # noqa: PLC0415
    from model.checkpoints.random_weights import random_checkpoint, shape_config  # noqa: PLC0415
    from model.drafting.drafter_files import choose  # noqa: PLC0415

    clips = read_clips(args.audio, args.references, args.limit) if args.audio else []
    checkpoint = load(args.model)
    timing = {"repeats": args.repeats, "warm_ups": args.warm_ups, "device": device, "tell": tell}
    timing["precision"] = args.precision
    kind = "" if args.precision == "float32" else f", {args.precision}"
    with tempfile.TemporaryDirectory(prefix="captiond-bench-") as scratch:
        plan = _plan(args, device, choose(args.drafter, checkpoint))
        benchmark = Benchmark(checkpoint, clips, plan, Path(scratch), tell)
        for section in wanted:
            if section != "passes":
                yield checkpoint.name + kind, section, OVER_CLIPS[section](benchmark)
                continue
            yield checkpoint.name + kind, section, passes(checkpoint, **timing)
            for shape in args.shapes:
                name = f"{shape}, random weights{kind}"
                # float16 halves the memory; passes run in their own dtype.
                made = random_checkpoint(name, shape_config(shape), dtype=torch.float16)
                yield name, section, passes(made, **timing)


def _plan(args: argparse.Namespace, device: str, drafter: Path | None) -> "Plan":
    from model.bench.benchmark import ENGINES, Plan  # noqa: PLC0415
    from model.bench.oracle import chance_for  # noqa: PLC0415

    chance = chance_for(args.alpha, args.block) if args.chance is None else args.chance
    return Plan(
        language=args.language,
        device=device,
        engines=args.engines or ENGINES,
        batches=args.batch,
        repeats=args.repeats,
        warm_ups=args.warm_ups,
        chance=chance,
        block=args.block,
        drafter=drafter,
        assistant=args.assistant,
        precision=args.precision,
    )


def tell(line: str) -> None:
    """Report progress on standard error: a run takes minutes."""
    sys.stderr.write(f"{line}\n")


def _count(text: str) -> int:
    if not _natural(text):
        raise argparse.ArgumentTypeError("at least 1 is wanted")
    return int(text)


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return number


def _counts(text: str) -> tuple[int, ...]:
    return tuple(sorted({_count(part) for part in text.split(",")}))


def _share(text: str) -> float:
    number = float(text)
    if not 0.0 <= number <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not within 0 … 1")
    return number


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"captiond bench: {message}\n")
    return status
