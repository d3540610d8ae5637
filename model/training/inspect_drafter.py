"""The verb `drafter`: what a drafter's file says, and how good it is on given audio."""

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
from model.training.data.distil import SHARD, teach
from model.training.data.teacher import Teacher, Trajectory, check_language
from model.training.evaluate import judge
from model.training.summary import describe_file, describe_score


def run(args: argparse.Namespace) -> int:
    """Show. 0: done; 1: the file, the model or the audio cannot be read."""
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
    """Its figures on every recording alone, as lines."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    checkpoint = load(model)
    check_language(checkpoint, args.language)
    network = load_drafter(args.file, checkpoint).network
    left_out: Counter[str] = Counter()
    found = find(args.audio, language=args.language, use="test", excluded=left_out)
    passages = [Passage((recording,)) for recording in found[: args.limit]]
    aux_layers = network.architecture.aux_layers
    teacher = Teacher(checkpoint, device=device, rows=8, aux_layers=aux_layers)
    taught = _taught(teacher, passages, args.language, left_out)
    score = judge(checkpoint, network, taught, kept=aux_layers, device=device)
    hours = sum(passage.seconds for passage in passages) / 3600
    reasons = "".join(f"; left out: {count} {reason}" for reason, count in left_out.items())
    encoder_len = f"{len(passages):,} recordings, {hours:.2f} h{reasons}"
    return f"{encoder_len}\n{describe_score(score, network.architecture.block)}"


def _taught(
    teacher: Teacher, passages: Sequence[Passage], language: str, left_out: Counter[str]
) -> Iterator[Trajectory]:

    with tqdm(total=len(passages), unit="recording") as progress:
        for at in range(0, len(passages), SHARD):
            kept, excluded = teach(teacher, passages[at : at + SHARD], language)
            left_out.update(excluded)
            yield from (trajectory for _, trajectory in kept)
            progress.update(len(passages[at : at + SHARD]))
