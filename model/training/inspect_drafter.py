"""The verb `drafter`: a drafter file's metadata, and its evaluation on given audio."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from model.checkpoints.load import ModelError, load
from model.drafting.drafter_files import load_drafter, read_metadata
from model.training.data.corpus import CorpusError, Passage, find
from model.training.data.distil import SHARD, decode_passages
from model.training.data.teacher import Teacher, Trajectory, check_language
from model.training.evaluate import evaluate
from model.training.summary import describe_file, describe_score


def run(args: argparse.Namespace) -> int:
    """Inspect or evaluate. 0: done; 1: the file, the model or the audio cannot be read."""
    try:
        metadata = read_metadata(args.file)
        if args.action == "inspect":
            sys.stdout.write(f"{_describe(args.file, metadata)}\n")
        else:
            sys.stdout.write(f"{_evaluate(args, args.model or metadata.get('model', 'base'))}\n")
    except (CorpusError, ModelError, OSError) as error:
        sys.stderr.write(f"captiond drafter: {error}\n")
        return 1
    return 0


def _describe(path: Path, metadata: Mapping[str, str]) -> str:

    try:
        return describe_file(path, metadata)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} is not what it says: its metadata cannot be read ({error!r})"
        ) from None


def _evaluate(args: argparse.Namespace, model: str) -> str:
    """The drafter's score over the recordings, each decoded alone, as lines."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    checkpoint = load(model)
    check_language(checkpoint, args.language)
    network = load_drafter(args.file, checkpoint).network
    left_out: Counter[str] = Counter()
    found = find(args.audio, language=args.language, use="test", excluded=left_out)
    passages = [Passage((recording,)) for recording in found[: args.limit]]
    aux_layers = network.architecture.aux_layers
    teacher = Teacher(checkpoint, device=device, rows=8, aux_layers=aux_layers)
    trajectories = _trajectories(teacher, passages, args.language, left_out)
    score = evaluate(checkpoint, network, trajectories, kept=aux_layers, device=device)
    hours = sum(passage.seconds for passage in passages) / 3600
    reasons = "".join(f"; left out: {count} {reason}" for reason, count in left_out.items())
    audio = f"{len(passages):,} recordings, {hours:.2f} h{reasons}"
    return f"{audio}\n{describe_score(score, network.architecture.block)}"


def _trajectories(
    teacher: Teacher, passages: Sequence[Passage], language: str, left_out: Counter[str]
) -> Iterator[Trajectory]:

    with tqdm(total=len(passages), unit="recording") as progress:
        for at in range(0, len(passages), SHARD):
            kept, excluded = decode_passages(teacher, passages[at : at + SHARD], language)
            left_out.update(excluded)
            yield from (trajectory for _, trajectory in kept)
            progress.update(len(passages[at : at + SHARD]))
