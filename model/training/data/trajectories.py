"""Trajectories of several caches, split into training and validation, and drawn into batches.

Every draw is a function of seed and step.
"""

import logging
import random
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from torch import Tensor
from torch.utils.data import Dataset

from model.training.data import cache
from model.training.data.cache import CacheError, CacheMetadata, Entry
from model.training.data.packing import Batch, draw_anchors, pack
from model.training.data.teacher import Trajectory
from model.training.recipe import Recipe

logger = logging.getLogger(__name__)

_LONGEST_SPAN = 12  # states: a quarter of a second


class TrajectorySplits:
    """Training and validation trajectories. Raises CacheError for caches that do not match.

    metadata: of the first cache. held_out: all trajectories of its validation speakers, who are left out
    of the training data of every cache. validation: a bounded, even selection of held_out.
    """

    def __init__(self, directories: Sequence[Path], recipe: Recipe) -> None:
        metadata = [cache.read_metadata(directory) for directory in directories]
        if len({(f.target, f.aux_layers) for f in metadata}) != 1:
            raise CacheError("the caches are of different targets or aux layers: name those of one")
        if missing := set(recipe.aux_layers) - set(metadata[0].aux_layers):
            raise CacheError(
                f"the caches lack the aux layers {sorted(missing)}: they have {metadata[0].aux_layers}"
            )
        self.metadata: CacheMetadata = metadata[0]
        first, *others = (_entries(directory) for directory in directories)
        # By name alone: a corpus may come from several sources, a voice may read several books.
        speakers = _held_out({entry.speaker for entry in first}, recipe.held_out)
        self.held_out = [entry for entry in first if entry.speaker in speakers]
        self.validation = _evenly_chosen(self.held_out, recipe.validation)
        every = (entry for entries in (first, *others) for entry in entries)
        self.training = [entry for entry in every if entry.speaker not in speakers]
        if not self.training or not self.validation:
            left_out = sum((cache.excluded(directory) for directory in directories), Counter[str]())
            reasons = "".join(f", {count} {reason}" for reason, count in left_out.items())
            raise CacheError(
                f"the caches hold too little: some of the first one's speakers are for validation "
                f"alone, which leaves {len(self.training)} passages to train on and "
                f"{len(self.validation)} to validate with. Left out were {left_out.total()}{reasons}. "
                f"Add speakers"
            )

    def counts(self) -> Counter[int]:
        """Counts of each token in the training transcripts."""
        counts: Counter[int] = Counter()
        for entry in self.training:
            counts.update(cache.read_tokens(entry)[entry.prompt_len :].tolist())
        return counts


def _entries(directory: Path) -> list[Entry]:
    """A cache's entries; passages that are not distilled yet are logged."""
    found = list(cache.entries(directory))
    excluded = cache.passages_excluded(directory).total()
    missing = cache.read_metadata(directory).passages - len(found) - excluded
    if missing:
        logger.warning("%s lacks %d of its passages: not all was distilled", directory, missing)
    return found


def _held_out(speakers: set[str], share: float) -> set[str]:
    """About that share of `speakers`, at least one; each is chosen by a hash of its name alone."""

    def draw(speaker: str) -> float:
        return int.from_bytes(sha256(speaker.encode()).digest()[:4], "big") / 2**32

    kept = {speaker for speaker in speakers if draw(speaker) < share}
    return kept or set(sorted(speakers, key=draw)[:1])


def _evenly_chosen(entries: list[Entry], count: int) -> list[Entry]:
    """At most `count` entries, at even distances."""
    count = min(count, len(entries))
    return [entries[n * len(entries) // count] for n in range(count)]


def draft_vocabulary(counts: Counter[int], coverage: float) -> tuple[int, ...] | None:
    """The most frequent ids that make up `coverage` of the counts, ascending; None for all."""
    if coverage >= 1:
        return None
    needed, ids = coverage * counts.total(), []
    for token, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if needed <= 0:
            break
        ids.append(token)
        needed -= count
    return tuple(sorted(ids))


class TrainingBatches(Dataset[Batch]):
    """A data set whose item n is the batch of step n, a function of seed and step.

    lookup: see `packing.lookup_of`. rank, world: index and number of the processes.
    """

    def __init__(
        self,
        splits: TrajectorySplits,
        recipe: Recipe,
        lookup: Tensor,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self._splits, self._recipe, self._lookup = splits, recipe, lookup
        self._rank, self._world = rank, world
        self._epoch: tuple[int, list[list[Entry]]] = (-1, [])

    def __len__(self) -> int:
        return self._recipe.steps

    def __getitem__(self, step: int) -> Batch:
        recipe = self._recipe
        number = step * self._world + self._rank
        source = random.Random(f"{recipe.seed} {number}")  # noqa: S311  (no secret depends on it)
        trajectories = [
            _masked(cache.read(entry), recipe.masked, source) for entry in self._batch(number)
        ]
        return pack(
            trajectories,
            [draw_anchors(trajectory, recipe.anchors, source) for trajectory in trajectories],
            kept=self._splits.metadata.aux_layers,
            wanted=recipe.aux_layers,
            block=recipe.block,
            lookup=self._lookup,
        )

    def _batch(self, number: int) -> list[Entry]:
        """Batch `number` of an endless series of shuffled epochs."""
        size = max(1, len(self._splits.training) // self._recipe.batch)
        epoch, at = divmod(number, size)
        if self._epoch[0] != epoch:
            seed = f"{self._recipe.seed} epoch {epoch}"
            self._epoch = epoch, epoch_batches(self._splits.training, self._recipe.batch, seed)
        return self._epoch[1][at]


def _masked(trajectory: Trajectory, spans: float, source: random.Random) -> Trajectory:
    """The trajectory with short spans of its states set to 0, `spans` per 100 states (after SpecAugment)."""
    states = trajectory.states
    for _ in range(round(len(states) * spans / 100)):
        at = source.randrange(len(states))
        states[at : at + source.randint(1, _LONGEST_SPAN)] = 0.0
    return trajectory


def epoch_batches(entries: Sequence[Entry], size: int, seed: str) -> list[list[Entry]]:
    """Random batches of entries of similar length, which need little padding; each entry at most once.

    A last batch smaller than `size` is dropped.
    """
    source = random.Random(seed)  # noqa: S311  (no secret depends on it)
    order = source.sample(list(entries), len(entries))
    pool = 16 * size
    batches: list[list[Entry]] = []
    for at in range(0, len(order), pool):
        alike = sorted(order[at : at + pool], key=lambda entry: entry.seconds)
        batches += [alike[n : n + size] for n in range(0, len(alike), size)]
    if len(batches) > 1 and len(batches[-1]) < size:
        batches.pop()
    source.shuffle(batches)
    return batches
