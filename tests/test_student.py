import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from model.training.data.packing import IGNORED
from model.training.student import Student, learning_rate
from tests.support.lessons import noise, teacher
from tests.support.pupils import batch, lesson_of, loss_by_hand, parallel_student, speech_student
from tests.support.tiny import CHECKPOINT

VOCABULARY = tuple(range(3, 150))


both_kinds = pytest.mark.parametrize(
    "make", [parallel_student, speech_student], ids=["parallel", "speech"]
)


@both_kinds
@pytest.mark.parametrize("vocabulary", [None, VOCABULARY])
def test_the_loss_decays_along_the_block(
    make: Callable[..., Student], vocabulary: tuple[int, ...] | None
) -> None:
    """Whisper-Flash's equation 3, EAGLE-ASR's β = 0.8, label by label; what has no label has no weight."""
    pupil, lesson = make(vocabulary), batch(vocabulary)
    decay = 0.8 if make is speech_student else math.exp(-1 / 4)
    with torch.no_grad():
        loss = float(pupil(lesson))
    assert loss == pytest.approx(
        loss_by_hand(pupil, lesson, [decay**k for k in range(4)]), rel=1e-5
    )


def test_a_batch_without_labels_costs_nothing() -> None:
    lesson = batch()
    silent = replace(lesson, labels=torch.full_like(lesson.labels, IGNORED))
    loss = parallel_student()(silent)
    loss.backward()
    assert float(loss.detach()) == 0.0


@both_kinds
def test_only_the_network_learns(make: Callable[..., Student]) -> None:
    """Embedding and head are the target's, frozen, and not part of what is saved."""
    pupil = make()
    names = {name for name, _ in pupil.named_parameters()}
    assert names
    assert all(name.startswith("network.") for name in names)
    assert set(pupil.state_dict()) == names


def test_what_may_not_be_emitted_is_not_proposed() -> None:
    """The engine's token rules hold in training, too: suppressed ids get no probability."""
    with torch.no_grad():
        logits = parallel_student().logits(batch())
    banned = list(CHECKPOINT.tokens.suppressed)
    assert (logits.softmax(-1)[..., banned] == 0).all()


def test_soft_labels_are_the_targets_own_distributions() -> None:
    """At its greedy tokens the target's distribution has its maximum."""
    taught, _ = teacher().trajectories([noise(3), noise(5)], "en")
    lesson = lesson_of([taught], [[4, 8]])
    told = parallel_student(soft=0.5).soft_labels(lesson)
    assert torch.allclose(told.sum(-1), torch.ones(told.shape[:-1]), atol=1e-4)
    counted = lesson.labels != IGNORED
    assert counted.any()
    assert torch.equal(told.argmax(-1)[counted], lesson.labels[counted])


@both_kinds
def test_the_soft_share_mixes_two_losses(make: Callable[..., Student]) -> None:
    lesson = batch(VOCABULARY)
    with torch.no_grad():
        hard, both, soft = (float(make(VOCABULARY, share)(lesson)) for share in (0.0, 0.25, 1.0))
    assert both == pytest.approx(0.75 * hard + 0.25 * soft, rel=1e-5)
    assert hard != pytest.approx(soft)


def test_matches_are_greedy_candidates_that_are_right() -> None:
    pupil, lesson = parallel_student(), batch()
    matches = pupil.matches(lesson)
    with torch.no_grad():
        best = pupil.logits(lesson).argmax(-1)
    truth = replace(lesson, labels=torch.where(lesson.labels == IGNORED, IGNORED, best))
    assert torch.equal(pupil.matches(truth), lesson.labels != IGNORED)
    assert not matches[lesson.labels == IGNORED].any()


def test_the_rate_rises_and_falls() -> None:
    """Linear to its peak over the warm-up, then half a cosine towards nothing."""
    rates = [learning_rate(step, 100, 2.0, 0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * n for n in range(1, 11)])
    assert rates[10] == 2.0
    assert rates[55] == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.01
    assert learning_rate(0, 1, 2.0, 0.04) == 2.0
