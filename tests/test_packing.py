import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.training.data.packing import (
    IGNORED,
    draw_anchors,
    lookup_of,
    possible_anchors,
    select_aux_layers,
)
from model.training.student import Student
from tests.support import pupils


def test_anchors_are_emitted_tokens_that_something_follows() -> None:
    """Neither the prompt tokens nor the end: eight tokens after four of a prompt give seven."""
    assert list(possible_anchors(pupils.trajectory(12))) == [4, 5, 6, 7, 8, 9, 10]


@given(st.integers(7, 60), st.integers(1, 20), st.randoms(use_true_random=False))
def test_anchors_are_drawn_once_each(length: int, count: int, source: random.Random) -> None:
    one = pupils.trajectory(length)
    drawn = draw_anchors(one, count, source)
    assert drawn == sorted(set(drawn))
    assert len(drawn) == min(count, length - 5)
    assert set(drawn) <= set(possible_anchors(one))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(7, 30), st.integers(1, 60)), min_size=1, max_size=3),
    st.integers(1, 8),
    st.randoms(use_true_random=False),
)
def test_a_batch_says_what_follows_each_anchor(
    sizes: list[tuple[int, int]], block: int, source: random.Random
) -> None:
    """Labels by hand; history strictly before the anchor; what fills up counts for nothing."""
    taught = [pupils.trajectory(*size, seed=n) for n, size in enumerate(sizes)]
    anchors = [draw_anchors(one, 5, source) for one in taught]
    batch = pupils.lesson_of(taught, anchors, block)
    for row, (one, places) in enumerate(zip(taught, anchors, strict=True)):
        for column in range(batch.positions.shape[1]):
            if column >= len(places):
                assert (batch.labels[row, column] == IGNORED).all()
                continue
            place = places[column]
            assert batch.positions[row, column] == place
            assert batch.anchors[row, column] == one.tokens[place]
            follow = one.tokens[place + 1 : place + 1 + block].tolist()
            wanted = follow + [IGNORED] * (block - len(follow))
            assert batch.labels[row, column].tolist() == wanted
            assert batch.history_mask[row, column].nonzero()[:, 0].tolist() == list(range(place))
        assert batch.audio_mask[row].sum() == len(one.states)
        assert torch.equal(batch.states[row, : len(one.states)], one.states.float())
        assert torch.equal(batch.features[row, : len(one.features)], one.features.float())
        assert torch.equal(batch.tokens[row, : len(one.tokens)], one.tokens)
        assert not batch.tokens[row, len(one.tokens) :].any()


def test_a_cut_vocabulary_has_indices_of_its_own() -> None:
    one = pupils.trajectory(8)
    vocabulary = sorted(set(one.tokens[[5, 7]].tolist()))
    batch = pupils.lesson_of([one], [[4]], 3, lookup_of(vocabulary, pupils.SIZE))
    wanted = [
        vocabulary.index(token) if token in vocabulary else IGNORED
        for token in one.tokens[5:8].tolist()
    ]
    assert batch.labels[0, 0].tolist() == wanted
    assert IGNORED in wanted


def test_aux_layers_are_selected_in_the_order_wanted() -> None:
    features = torch.arange(12.0).view(2, 6)  # [n, three blocks of two]
    assert select_aux_layers(features, (1, 4, 7), (1, 7)).tolist() == [[0, 1, 4, 5], [6, 7, 10, 11]]


both_kinds = pytest.mark.parametrize(
    "pupil", [pupils.parallel_student(), pupils.speech_student()], ids=["parallel", "speech"]
)


@both_kinds
def test_training_in_bfloat16_sees_no_more(pupil: Student) -> None:
    """Masks hold there, too: a leak would look like a wonderful drafter."""
    one = pupils.trajectory(20)
    changed = replace(one, features=one.features.clone())
    changed.features[9:] += 3.0
    with torch.autocast("cpu", torch.bfloat16):
        before, after = (pupils.packed(pupil, each, [5, 9, 14]) for each in (one, changed))
    assert torch.equal(before[:2], after[:2])
    assert not torch.equal(before[2], after[2])


@both_kinds
def test_a_block_sees_no_history_at_or_behind_its_anchor(pupil: Student) -> None:
    one = pupils.trajectory(20)
    before = pupils.packed(pupil, one, [9])
    changed = one.features.clone()
    changed[9:] = 7.0
    assert torch.equal(pupils.packed(pupil, replace(one, features=changed), [9]), before)
    changed[8] = 7.0
    assert not torch.allclose(
        pupils.packed(pupil, replace(one, features=changed), [9]), before, atol=1e-3
    )


@both_kinds
def test_a_block_sees_no_other_block(pupil: Student) -> None:
    """Packed or alone, it says the same; so it does whatever its neighbours' anchors are."""
    one = pupils.trajectory(20)
    together = pupils.packed(pupil, one, [6, 9, 15])
    for at, place in enumerate((6, 9, 15)):
        assert torch.allclose(pupils.packed(pupil, one, [place])[0], together[at], atol=1e-4)
    tokens = one.tokens.clone()
    tokens[15] = (tokens[15] + 1) % 200
    other = pupils.packed(pupil, replace(one, tokens=tokens), [6, 9, 15])
    assert torch.allclose(other[:2], together[:2], atol=1e-4)


@both_kinds
def test_rows_do_not_see_each_others_padding(pupil: Student) -> None:
    short, long = pupils.trajectory(9, 50), pupils.trajectory(30, 100, seed=1)
    with torch.no_grad():
        together = pupil.logits(pupils.lesson_of([short, long], [[5], [20, 22]]))[0, 0]
    assert torch.allclose(together, pupils.packed(pupil, short, [5])[0], atol=1e-4)


def test_a_batch_moves_as_a_whole() -> None:
    batch = pupils.lesson_of([pupils.trajectory(9)], [[5]])
    moved = batch.to(torch.device("meta"))
    assert {getattr(moved, name).device.type for name in batch.__slots__} == {"meta"}


@pytest.mark.parametrize("vocabulary", [None, (3, 9)])
def test_the_lookup_undoes_the_vocabulary(vocabulary: tuple[int, ...] | None) -> None:
    lookup = lookup_of(vocabulary, 12)
    known = list(range(12) if vocabulary is None else vocabulary)
    assert lookup[known].tolist() == list(range(len(known)))
    assert (lookup == IGNORED).sum() == 12 - len(known)
