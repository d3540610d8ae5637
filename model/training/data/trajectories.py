"""Trajectories of several caches: told apart into training and validation, and drawn from.

Every draw is a function of seed and step; what becomes of a batch is `trainer`'s.
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
    """Trajectories of caches of one target. Raises CacheError where they do not go together.

    metadata: of the first cache. held_out: what its speakers for validation say; those speak in no
    training, whichever cache it comes from. validation: a spread of that, of bounded size.
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
        first, *others = (_whole(directory) for directory in directories)
        kept = _held_out({_speaker(entry) for entry in first}, recipe.held_out)
        self.held_out = [entry for entry in first if _speaker(entry) in kept]
        self.validation = _spread(self.held_out, recipe.validation)
        every = (entry for entries in (first, *others) for entry in entries)
        self.training = [entry for entry in every if _speaker(entry) not in kept]
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
        """How often each token is emitted in what is trained on."""
        counts: Counter[int] = Counter()
        for entry in self.training:
            counts.update(cache.read_tokens(entry)[entry.prompt_len :].tolist())
        return counts


def _whole(directory: Path) -> list[Entry]:
    """All that a cache holds; logged where that is not all that it is of."""
    found = list(cache.entries(directory))
    taught_nothing = cache.passages_excluded(directory).total()
    lacking = cache.read_metadata(directory).passages - len(found) - taught_nothing
    if lacking:
        logger.warning("%s lacks %d of its passages: not all was distilled", directory, lacking)
    return found


def _speaker(entry: Entry) -> str:
    """By name alone: one corpus may come from several sources, one voice read several books."""
    return entry.speaker


def _held_out(speakers: set[str], share: float) -> set[str]:
    """About that share of them, at least one: by their names alone, whoever else there is."""

    def place(speaker: str) -> float:
        return int.from_bytes(sha256(speaker.encode()).digest()[:4], "big") / 2**32

    kept = {speaker for speaker in speakers if place(speaker) < share}
    return kept or set(sorted(speakers, key=place)[:1])


def _spread(entries: list[Entry], count: int) -> list[Entry]:
    """At most `count`, evenly from all."""
    count = min(count, len(entries))
    return [entries[n * len(entries) // count] for n in range(count)]


def draft_vocabulary(counts: Counter[int], coverage: float) -> tuple[int, ...] | None:
    """The most frequent ids that make up `coverage` of what was counted, ascending; None for all."""
    if coverage >= 1:
        return None
    needed, ids = coverage * counts.total(), []
    for token, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if needed <= 0:
            break
        ids.append(token)
        needed -= count
    return tuple(sorted(ids))


class Steps(Dataset[Batch]):
    """Item n is the batch of step n: its utterances and anchors follow from seed and step alone.

    lookup: see `packing.pack`. rank, world: which process this is, of how many.
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
        taught = [
            _masked(cache.read(entry), recipe.masked, source) for entry in self._chosen(number)
        ]
        return pack(
            taught,
            [draw_anchors(trajectory, recipe.anchors, source) for trajectory in taught],
            kept=self._splits.metadata.aux_layers,
            wanted=recipe.aux_layers,
            block=recipe.block,
            lookup=self._lookup,
        )

    def _chosen(self, number: int) -> list[Entry]:
        """Utterances of batch `number` of an endless row of shuffled epochs."""
        size = max(1, len(self._splits.training) // self._recipe.batch)
        epoch, at = divmod(number, size)
        if self._epoch[0] != epoch:
            seed = f"{self._recipe.seed} epoch {epoch}"
            self._epoch = epoch, epoch_batches(self._splits.training, self._recipe.batch, seed)
        return self._epoch[1][at]


def _masked(trajectory: Trajectory, spans: float, source: random.Random) -> Trajectory:
    """With short spans of its states put out, so many per 100 states (after SpecAugment's)."""
    states = trajectory.states
    for _ in range(round(len(states) * spans / 100)):
        at = source.randrange(len(states))
        states[at : at + source.randint(1, _LONGEST_SPAN)] = 0.0
    return trajectory


def epoch_batches(entries: Sequence[Entry], size: int, seed: str) -> list[list[Entry]]:
    """All entries once, in random batches of utterances alike in length: padding is waste.

    What is left over of an epoch waits for the next.
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
