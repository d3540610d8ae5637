"""The verb `bench`: engines, passes, blocks and temperatures measured on this machine.

Results are written after each section, so that an interrupted run keeps what it finished.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from model.bench.bench_flags import SECTIONS
from model.bench.benchmark import ENGINES, Benchmark, Plan
from model.bench.clips import BenchError, read_clips
from model.bench.oracle import chance_for
from model.bench.passes import passes
from model.bench.report import read, write
from model.bench.sections import SECTIONS as OVER_CLIPS
from model.bench.word_errors import normalised
from model.checkpoints.load import ModelError, load
from model.checkpoints.random_weights import SHAPES, random_checkpoint, shape_config
from model.drafting.drafter_files import choose
from model.engine.batch_sizes import BUCKETS
from model.engine.build import check_int8


def run(args: argparse.Namespace) -> int:
    """Measure and write. 0: done; 1: something needed is missing or unreadable; 2: wrong usage."""
    wanted = args.sections or list(SECTIONS)
    wrong = _misuse(args, wanted)
    if wrong is not None:
        return _fail(wrong, 2)

    try:
        device = _prepare(args)
        for model, section, figures in _measured(args, wanted, device):
            for path in write(args.output, model, section, figures, device):
                tell(f"{section}: written to {path}")
    except (BenchError, ModelError) as error:
        return _fail(str(error), 1)
    except torch.OutOfMemoryError as error:
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


def _plan(args: argparse.Namespace, device: str, drafter: Path | None) -> Plan:

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


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"captiond bench: {message}\n")
    return status
