"""The verb `train`: find, join, distil, train and evaluate, from audio to a drafter file.

It reads the command line and runs the stages; each continues where it was stopped.
"""

import argparse
import logging
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.checkpoints.load import Checkpoint
    from model.training.recipe import Recipe
    from model.training.trainer import Trainer

SUMMARY = "train a drafter for a model on your own audio"

_TIMEOUT = timedelta(hours=12)  # between processes of one run, whose shares differ in length
_STOPPED = 128 + signal.SIGINT


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
        type=_numbers,
        metavar="N,…",
        help="the model's decoder blocks that the layers begin as, the first one being 0 (default: "
        "the last three; of a Speech-Draft, which has one layer, the last)",
    )
    parser.add_argument("--steps", type=count, default=4000, help="default: %(default)s")
    parser.add_argument(
        "--batch", type=count, default=4, help="passages in a step of a process (default: 4)"
    )
    parser.add_argument(
        "--anchors", type=count, default=16, help="blocks of a passage in a step (default: 16)"
    )
    parser.add_argument(
        "--rate", type=_positive, default=6e-4, help="highest learning rate (default: %(default)s)"
    )
    parser.add_argument("--block", type=count, default=8, help="candidates (default: 8)")
    parser.add_argument(
        "--coverage",
        type=_coverage,
        default=0.999,
        help="share of the data's tokens that can be proposed; 1 for the model's whole "
        "vocabulary (default: %(default)s)",
    )
    parser.add_argument(
        "--soft",
        type=_share,
        default=0.0,
        help="share of the loss that is learned from the model's distributions rather than from its "
        "choices (default: 0)",
    )
    parser.add_argument(
        "--masked",
        type=_amount,
        default=0.0,
        help="short spans of audio that are put out in training, per two seconds (default: 0)",
    )
    parser.add_argument("--seed", type=int, default=0, help="default: 0")


def run(args: argparse.Namespace) -> int:
    """Train. 0: the drafter is written; 1: something is missing or unreadable; 130: stopped."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("model").setLevel(logging.INFO)
    from model.checkpoints.load import ModelError  # noqa: PLC0415  (help needs none of the seconds this takes)
    from model.training.data.cache import CacheError  # noqa: PLC0415
    from model.training.data.corpus import CorpusError  # noqa: PLC0415
    from model.training.trainer import Stopped  # noqa: PLC0415

    try:
        _train(args)
    except (CacheError, CorpusError, ModelError, OSError) as error:
        sys.stderr.write(f"captiond train: {error}\n")
        return 1
    except (KeyboardInterrupt, Stopped) as error:
        reason = str(error) or "stopped"
        sys.stderr.write(f"captiond train: {reason}; the same command goes on from there\n")
        return _STOPPED
    return 0


def _train(args: argparse.Namespace) -> None:
    import torch  # noqa: PLC0415
    from accelerate import PartialState  # noqa: PLC0415

    from model.checkpoints.load import load  # noqa: PLC0415
    from model.training.curves import draw  # noqa: PLC0415
    from model.training.data.cache import CacheError  # noqa: PLC0415
    from model.training.trainer import Trainer  # noqa: PLC0415

    state = PartialState(cpu=not torch.cuda.is_available(), timeout=_TIMEOUT)
    checkpoint = load(args.model)
    recipe = _recipe(args, checkpoint)
    caches = args.cache or [args.out / "cache"]
    if not (args.data or args.cache or caches[0].exists()):
        raise CacheError(f"there is nothing to learn from in {caches[0]}: name audio with --data")
    if args.data:
        _distil(args, checkpoint, recipe, caches[0], state)
    state.wait_for_everyone()
    trainer = Trainer(checkpoint, caches, recipe, args.out)
    with _stop_requests() as stop_requested:
        try:
            trainer.run(stop_requested)
        finally:
            if state.is_main_process and (args.out / "curve.json").exists():
                draw(args.out / "curve.json", args.out / "curve.svg")
    if state.is_main_process:
        _finish(args, checkpoint, trainer, caches, state.device)


def _recipe(args: argparse.Namespace, checkpoint: "Checkpoint") -> "Recipe":
    """The recipe of the flags. Raises CorpusError for blocks that the model does not have."""
    from model.training.recipe import Recipe, aux_layers_for, speech_aux_layers  # noqa: PLC0415

    layers, soft = _layers(args, checkpoint), args.soft > 0
    if args.kind == "speech":
        aux_layers = speech_aux_layers(checkpoint.config, layers[0], soft=soft)
    else:
        aux_layers = aux_layers_for(checkpoint.config, layers, soft=soft)
    return Recipe(
        layers=layers,
        aux_layers=aux_layers,
        block=args.block,
        steps=args.steps,
        batch=args.batch,
        anchors=args.anchors,
        peak=args.rate,
        coverage=args.coverage,
        soft=args.soft,
        seed=args.seed,
        kind=args.kind,
        masked=args.masked,
    )


def _layers(args: argparse.Namespace, checkpoint: "Checkpoint") -> tuple[int, ...]:
    """The blocks of --layers, or the default. Raises CorpusError for unknown blocks, or too many."""
    from model.training.data.corpus import CorpusError  # noqa: PLC0415
    from model.training.recipe import last_layers  # noqa: PLC0415

    speech = args.kind == "speech"
    layers: tuple[int, ...] = args.layers or last_layers(checkpoint.config, 1 if speech else 3)
    if speech and len(layers) != 1:
        raise CorpusError("--layers: a Speech-Draft begins as one of the model's blocks")
    blocks = int(checkpoint.config.decoder_layers)
    if not all(0 <= layer < blocks for layer in layers):
        raise CorpusError(
            f"--layers: {checkpoint.name} has the decoder blocks 0 to {blocks - 1}, "
            f"not {', '.join(map(str, layers))}"
        )
    return layers


def _distil(
    args: argparse.Namespace, checkpoint: "Checkpoint", recipe: "Recipe", cache: Path, state: Any
) -> None:
    """Find, join and distil the passages that the cache lacks; each process does its share."""
    from model.training.data.cache import write_left_out  # noqa: PLC0415
    from model.training.data.corpus import find, join  # noqa: PLC0415
    from model.training.data.distil import distil  # noqa: PLC0415

    left_out: Counter[str] = Counter()
    recordings = [
        replace(one, licence=args.licence) if one.licence == "not stated" else one
        for one in find(args.data, language=args.language, excluded=left_out)
    ]
    passages = join(recordings, seed=args.seed)
    if state.is_main_process:
        hours = sum(passage.seconds for passage in passages) / 3600
        _tell(f"{len(recordings):,} recordings, {len(passages):,} passages, {hours:.2f} h")
    distil(
        checkpoint,
        passages,
        cache,
        device=state.device,
        language=args.language,
        aux_layers=recipe.aux_layers,
        seed=args.seed if args.perturb else None,
        share=(state.process_index, state.num_processes),
    )
    if state.is_main_process:
        write_left_out(cache, left_out)


def _finish(
    args: argparse.Namespace,
    checkpoint: "Checkpoint",
    trainer: "Trainer",
    caches: list[Path],
    device: Any,
) -> None:
    """Evaluate the best network on all held-out trajectories, and write it with its notes."""
    from model.drafting.drafter_files import load_drafter, read_metadata, save_network  # noqa: PLC0415
    from model.training.data import cache  # noqa: PLC0415
    from model.training.data.files import replacing  # noqa: PLC0415
    from model.training.evaluate import evaluate  # noqa: PLC0415
    from model.training.summary import data_notes, describe_file, score_notes  # noqa: PLC0415

    best = args.out / "best.safetensors"
    network, metadata = load_drafter(best, checkpoint).network, read_metadata(best)
    splits = trainer.splits
    trajectories = (cache.read(entry) for entry in splits.held_out)
    score = evaluate(
        checkpoint, network, trajectories, kept=splits.metadata.aux_layers, device=device
    )
    excluded = sum((cache.excluded(directory) for directory in caches), Counter[str]())
    path = args.out / f"{checkpoint.name.rpartition('/')[2]}.safetensors"
    notes = {"recipe": metadata["recipe"], "step": metadata["step"], "model": checkpoint.name}
    notes |= data_notes(splits.training, excluded) | score_notes(score, splits.held_out)
    notes["command"] = shlex.join(["captiond", *sys.argv[1:]])
    with replacing(path) as temporary:
        save_network(
            temporary,
            network,
            target=checkpoint.fingerprint,
            acceptance=score.acceptance(network.architecture.block),
            notes=notes,
        )
    sys.stdout.write(f"{describe_file(path, read_metadata(path))}\n")


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM has come. The first one asks; another one ends the process."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def count(text: str) -> int:
    """A flag's whole number from 1 on. Raises argparse.ArgumentTypeError, or ValueError."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 is wanted")
    return number


def _positive(text: str) -> float:
    number = float(text)
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return number


def _amount(text: str) -> float:
    number = float(text)
    if not 0.0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is less than 0, or no number")
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0.0 <= number <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not within 0 … 1")
    return number


def _coverage(text: str) -> float:
    share = _share(text)
    if not share:
        raise argparse.ArgumentTypeError("a vocabulary of no tokens proposes nothing")
    return share
