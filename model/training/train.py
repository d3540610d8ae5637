"""The verb `train`: find, join, distil, train and evaluate, from audio to a drafter file.

It runs the stages; each continues where it was stopped.
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
from typing import Any

import torch
from accelerate import PartialState

from model.checkpoints.load import Checkpoint, ModelError, load
from model.drafting.drafter_files import load_drafter, read_metadata, save_network
from model.training.curves import draw
from model.training.data import cache
from model.training.data.cache import CacheError, write_left_out
from model.training.data.corpus import CorpusError, find, join
from model.training.data.distil import distil
from model.training.data.files import replacing
from model.training.evaluate import evaluate
from model.training.recipe import Recipe, aux_layers_for, last_layers, speech_aux_layers
from model.training.summary import data_notes, describe_file, score_notes
from model.training.trainer import Stopped, Trainer

_TIMEOUT = timedelta(hours=12)  # between processes of one run, whose shares differ in length
_STOPPED = 128 + signal.SIGINT


def run(args: argparse.Namespace) -> int:
    """Train. 0: the drafter is written; 1: something is missing or unreadable; 130: stopped."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("model").setLevel(logging.INFO)

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


def _recipe(args: argparse.Namespace, checkpoint: Checkpoint) -> Recipe:
    """The recipe of the flags. Raises CorpusError for blocks that the model does not have."""
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


def _layers(args: argparse.Namespace, checkpoint: Checkpoint) -> tuple[int, ...]:
    """The blocks of --layers, or the default. Raises CorpusError for unknown blocks, or too many."""
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
    args: argparse.Namespace, checkpoint: Checkpoint, recipe: Recipe, cache: Path, state: Any
) -> None:
    """Find, join and distil the passages that the cache lacks; each process does its share."""
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
    checkpoint: Checkpoint,
    trainer: Trainer,
    caches: list[Path],
    device: Any,
) -> None:
    """Evaluate the best network on all held-out trajectories, and write it with its notes."""
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
