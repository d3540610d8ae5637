from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.training.data.cache import CacheError, Entry
from model.training.data.packing import lookup_of
from model.training.data.trajectories import (
    TrainingBatches,
    TrajectorySplits,
    draft_vocabulary,
    epoch_batches,
)
from tests.support.lessons import RECIPE, fill, passage, passages
from tests.support.tiny import CHECKPOINT

EVERY = lookup_of(None, CHECKPOINT.config.vocab_size)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trajectories")
    return fill(folder / "cache", passages(folder / "audio", 40))


def spoken_by(entries: list[Entry]) -> set[tuple[str, str]]:
    return {(entry.source, entry.speaker) for entry in entries}


def test_validation_has_speakers_of_its_own(filled: Path, tmp_path: Path) -> None:
    """Also where those speak in a cache that came later."""
    splits = TrajectorySplits([filled], RECIPE)
    kept = spoken_by(splits.held_out)
    assert kept
    assert not kept & spoken_by(splits.training)
    assert len(splits.validation) == RECIPE.validation
    assert spoken_by(splits.validation) <= kept
    both = TrajectorySplits(
        [filled, fill(tmp_path / "more", passages(tmp_path / "audio", 20))], RECIPE
    )
    assert len(both.training) > len(splits.training)
    assert not kept & spoken_by(both.training)


def test_caches_must_go_together(filled: Path, tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="is no cache"):
        TrajectorySplits([filled, tmp_path], RECIPE)
    with pytest.raises(CacheError, match=r"lack the aux layers \[2\]: they have \(0, 1\)"):
        TrajectorySplits([filled], replace(RECIPE, aux_layers=(0, 1, 2)))
    other = tmp_path / "facts.json"
    other.write_text((filled / "facts.json").read_text().replace(CHECKPOINT.fingerprint, "x"))
    with pytest.raises(CacheError, match="of different targets or aux layers"):
        TrajectorySplits([filled, tmp_path], RECIPE)


def test_too_little_is_said(tmp_path: Path) -> None:
    """With one speaker there is nobody left, on one side or the other."""
    lonely = fill(tmp_path / "cache", [passage(tmp_path / f"{n}.wav", n, "me") for n in range(4)])
    with pytest.raises(CacheError, match=r"for validation alone, .* Add speakers"):
        TrajectorySplits([lonely], RECIPE)


def test_of_few_speakers_one_is_held_out(tmp_path: Path) -> None:
    """Also where the share is less than one of them."""
    taught = [passage(tmp_path / f"{n}.wav", n, f"speaker {n % 2}") for n in range(1, 24)]
    few = fill(tmp_path / "cache", taught)
    splits = TrajectorySplits([few], replace(RECIPE, held_out=1e-9))
    assert len({name for _, name in spoken_by(splits.held_out)}) == 1
    assert splits.training


def test_what_is_emitted_is_counted(filled: Path) -> None:
    """The end of transcript once for each passage; what opens it never."""
    splits = TrajectorySplits([filled], RECIPE)
    counts = splits.counts()
    assert counts[CHECKPOINT.tokens.eot] == len(splits.training)
    assert counts[CHECKPOINT.tokens.sot] == 0
    assert counts.total() == sum(one.tokens - one.prompt_len for one in splits.training)


def test_a_draft_vocabulary_is_the_most_frequent_tokens() -> None:
    counts = Counter({7: 50, 3: 30, 9: 15, 1: 5})
    assert draft_vocabulary(counts, 0.8) == (3, 7)
    assert draft_vocabulary(counts, 0.81) == (3, 7, 9)
    assert draft_vocabulary(counts, 0.9999) == (1, 3, 7, 9)
    assert draft_vocabulary(counts, 1.0) is None


@given(st.dictionaries(st.integers(0, 99), st.integers(1, 50), min_size=1), st.floats(0.01, 0.999))
def test_a_draft_vocabulary_covers_what_it_should(counts: dict[int, int], share: float) -> None:
    chosen = draft_vocabulary(Counter(counts), share)
    assert chosen is not None
    covered = sum(counts[token] for token in chosen)
    total = sum(counts.values())
    assert covered >= share * total - 1e-6
    assert covered - min(counts[token] for token in chosen) < share * total + 1e-6
    assert list(chosen) == sorted(chosen)


def entry(number: int) -> Entry:
    return Entry(Path(), number, "s", "x", "CC0", (number * 37) % 29, 9, 4)


@given(st.integers(1, 300), st.integers(1, 6))
def test_an_epoch_has_every_passage_at_most_once(count: int, size: int) -> None:
    """What fills no batch waits; batches are as long as asked."""
    entries = [entry(number) for number in range(count)]
    batches = epoch_batches(entries, size, "seed")
    drawn = Counter(one.index for batch in batches for one in batch)
    assert set(drawn.values()) == {1}
    assert count - size < len(drawn) <= count
    assert len(batches) == max(1, count // size)
    assert batches == epoch_batches(entries, size, "seed")


def test_a_batch_holds_passages_alike_in_length() -> None:
    batches = epoch_batches([entry(number) for number in range(640)], 4, "seed")
    spreads = [max(e.seconds for e in b) - min(e.seconds for e in b) for b in batches]
    assert sum(spreads) / len(spreads) < 4  # at random it would be 17


def test_a_step_has_the_same_batch_whatever_came_before(filled: Path) -> None:
    """So that a resumed run is the uninterrupted one; processes draw different ones."""
    splits = TrajectorySplits([filled], RECIPE)
    steps, again = TrainingBatches(splits, RECIPE, EVERY), TrainingBatches(splits, RECIPE, EVERY)
    assert len(steps) == RECIPE.steps
    in_order = [steps[n] for n in range(5)]
    for number in (3, 0, 4):
        for name in ("features", "anchors", "labels"):
            assert torch.equal(getattr(again[number], name), getattr(in_order[number], name))
    second = TrainingBatches(splits, RECIPE, EVERY, rank=1, world=2)
    assert torch.equal(second[1].anchors, in_order[3].anchors)
