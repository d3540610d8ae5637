import math
from dataclasses import replace

import pytest
import torch

from model.training.data.packing import IGNORED, pack
from model.training.student import learning_rate
from tests.support.lessons import AUX_LAYERS, noise, teacher
from tests.support.pupils import EVERY, batch, loss_by_hand, parallel_student
from tests.support.tiny import CHECKPOINT

VOCABULARY = tuple(range(3, 150))


@pytest.mark.parametrize("vocabulary", [None, VOCABULARY])
def test_the_loss_decays_along_the_block(vocabulary: tuple[int, ...] | None) -> None:
    """Equation 3 by hand, label by label; what has no label has no weight."""
    pupil, lesson = parallel_student(vocabulary), batch(vocabulary)
    with torch.no_grad():
        loss = float(pupil(lesson))
    wanted = loss_by_hand(pupil, lesson, [math.exp(-position / 4) for position in range(4)])
    assert loss == pytest.approx(wanted, rel=1e-5)


def test_a_batch_without_labels_costs_nothing() -> None:
    lesson = batch()
    silent = replace(lesson, labels=torch.full_like(lesson.labels, IGNORED))
    loss = parallel_student()(silent)
    loss.backward()
    assert float(loss.detach()) == 0.0


def test_only_the_network_learns() -> None:
    """Embedding and head are the target's, frozen, and not part of what is saved."""
    pupil = parallel_student()
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
    (taught,) = (one for one in teacher().trajectories([noise(3), noise(5)], "en")[:1])
    lesson = pack([taught], [[4, 8]], kept=AUX_LAYERS, wanted=AUX_LAYERS, block=4, lookup=EVERY)
    told = parallel_student(soft=0.5).soft_labels(lesson)
    assert torch.allclose(told.sum(-1), torch.ones(told.shape[:-1]), atol=1e-4)
    counted = lesson.labels != IGNORED
    assert counted.any()
    assert torch.equal(told.argmax(-1)[counted], lesson.labels[counted])


def test_the_soft_share_mixes_two_losses() -> None:
    lesson = batch(VOCABULARY)
    with torch.no_grad():
        hard, both, soft = (
            float(parallel_student(VOCABULARY, share)(lesson)) for share in (0.0, 0.25, 1.0)
        )
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
