"""Distillation: the frozen target decodes passages, shard by shard, into a cache.

It resumes at any shard: the files are the state.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from model.checkpoints.load import Checkpoint
from model.training.data import cache
from model.training.data.cache import CacheMetadata
from model.training.data.corpus import CorpusError, Passage, listing, perturb
from model.training.data.teacher import Teacher, Trajectory, check_language

SHARD = 32  # passages
_ROWS = {"cpu": 8, "cuda": 16}  # decoded at once

logger = logging.getLogger(__name__)


def distil(
    checkpoint: Checkpoint,
    passages: Sequence[Passage],
    directory: Path,
    *,
    device: torch.device,
    language: str = "en",
    aux_layers: tuple[int, ...] | None = None,
    seed: int | None = None,
    share: tuple[int, int] = (0, 1),
) -> Counter[str]:
    """Decode the shards that the cache in `directory` lacks; returns counts of exclusions by reason.

    aux_layers: decoder blocks whose outputs are kept; by default all. seed: of `corpus.perturb`; None
    leaves the passages unchanged. share: (index, number) of the processes that fill the cache. Raises
    CacheError for a directory made from something else, ModelError for a language that the target does
    not know, OSError when the disk is full; the next run continues.
    """
    check_language(checkpoint, language)
    if aux_layers is None:
        aux_layers = tuple(range(checkpoint.config.decoder_layers))
    metadata = CacheMetadata(
        target=checkpoint.fingerprint,
        model=checkpoint.name,
        aux_layers=aux_layers,
        language=language,
        listing=listing(passages),
        passages=len(passages),
        perturb=seed,
    )
    cache.create(directory, metadata)
    inputs = passages if seed is None else perturb(passages, seed)
    numbers = range(share[0], -(-len(inputs) // SHARD), share[1])
    missing = [n for n in numbers if not cache.shard_path(directory, n).exists()]
    if missing:
        teacher = Teacher(checkpoint, device=device, rows=_ROWS[device.type], aux_layers=aux_layers)
        total = sum(len(_shard(inputs, n)) for n in numbers)
        done = total - sum(len(_shard(inputs, n)) for n in missing)
        with tqdm(total=total, initial=done, unit="passage") as progress:
            for number in missing:
                shard, path = _shard(inputs, number), cache.shard_path(directory, number)
                cache.write_shard(path, *decode_passages(teacher, shard, language))
                progress.update(len(shard))
    return cache.excluded(directory)


def _shard(passages: Sequence[Passage], number: int) -> Sequence[Passage]:
    return passages[number * SHARD : (number + 1) * SHARD]


def decode_passages(
    teacher: Teacher, passages: Sequence[Passage], language: str
) -> tuple[list[tuple[Passage, Trajectory]], Counter[str]]:
    """Usable trajectories of `passages`, and counts of the excluded ones by reason."""
    left_out: Counter[str] = Counter()
    read: list[tuple[Passage, NDArray[np.float32]]] = []
    for passage in passages:
        try:
            read.append((passage, passage.read()))
        except CorpusError as error:
            logger.warning("left out: %s", error)
            left_out["unreadable"] += 1
    # Passages of similar length share a batch: few rows idle until the longest ends.
    read.sort(key=lambda pair: len(pair[1]))
    kept = []
    for at in range(0, len(read), teacher.rows):
        batch = read[at : at + teacher.rows]
        decoded = teacher.trajectories([audio for _, audio in batch], language)
        for (passage, _), trajectory in zip(batch, decoded, strict=True):
            reason = _reason(trajectory)
            if reason is None:
                kept.append((passage, trajectory))
            else:
                left_out[reason] += 1
    return kept, left_out


def _reason(trajectory: Trajectory) -> str | None:
    """Why a trajectory is excluded (A.3); None for a usable one."""
    if not trajectory.finished:
        return "at the length limit"
    if len(trajectory.tokens) - trajectory.prompt_len < 3:  # two tokens and the end
        return "fewer than two tokens"
    if not (trajectory.features.isfinite().all() and trajectory.states.isfinite().all()):
        return "not finite"
    return None
