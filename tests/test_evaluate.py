import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.engine import Engine
from model.requests import Request
from model.trained import Trained
from model.training.distil import teach
from model.training.evaluate import Score, judge, walk
from model.training.packing import IGNORED, draw_anchors, lookup_of, pack
from model.training.student import Student
from model.training.teacher import Trajectory
from tests.lessons import CHECKPOINT, CPU, TAPS, noise, passages, teacher
from tests.test_speech_student import student as speech_student
from tests.test_student import student


def test_a_walk_by_hand() -> None:
    """Two accepted and one of the target's own; none and one; then the end, which is accepted."""
    matches = torch.tensor(
        [[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]], dtype=torch.bool
    )
    assert walk(matches) == (3, 6, [2, 0, 2])


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=30))
def test_a_walk_emits_every_token_once(rows: list[list[bool]]) -> None:
    matches = torch.tensor(rows)
    for place in range(len(rows)):  # nothing lies behind the end
        matches[place, len(rows) - place :] = False
    rounds, tokens, lengths = walk(matches)
    assert tokens == len(rows)
    assert rounds == len(lengths)
    bonus = rounds - (sum(lengths) + rounds - tokens)
    assert 0 <= bonus <= rounds
    assert sum(lengths) + bonus == tokens


def test_figures_follow_from_the_counts() -> None:
    """α of all that was proposed, τ of all that was emitted."""
    score = Score(rounds=10, tokens=25, accepted=(8, 4, 3))
    assert score.tau == 2.5
    assert score.alpha == 0.5
    assert score.prefix == 1.5
    assert score.acceptance() == (0.8, 0.5, 0.75)
    assert Score(0, 0, (0, 0)).acceptance() == (0.0, 0.0)


def trained(pupil: Student, taught: list[Trajectory]) -> Student:
    """It, when it has learned these few by heart, or nearly."""
    lookup = lookup_of(pupil.network.architecture.vocabulary, CHECKPOINT.config.vocab_size)
    optimizer = torch.optim.AdamW(pupil.parameters(), lr=3e-3)
    for step in range(60):
        anchors = [draw_anchors(one, 8, random.Random(step)) for one in taught]
        lesson = pack(taught, anchors, kept=TAPS, wanted=TAPS, block=4, lookup=lookup)
        assert (lesson.labels != IGNORED).any()
        optimizer.zero_grad()
        pupil(lesson).backward()
        optimizer.step()
    return pupil


@pytest.mark.parametrize("make", [student, speech_student], ids=["parallel", "speech"])
def test_the_walk_is_what_the_engine_does(
    tmp_path: Path, make: Callable[[tuple[int, ...]], Student], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same drafter over the same audio: as many rounds, tokens and accepted candidates."""
    # As `judge` computes: in int8, which serves, a near tie may fall the other way.
    monkeypatch.setattr("model.draft_memory.missing_instructions", lambda: ["any"])
    taught = passages(tmp_path, 24)
    kept, _ = teach(teacher(), taught, "en")
    pairs = [(one, trajectory) for one, trajectory in kept if len(trajectory.tokens) < 32]
    pupil = trained(make(tuple(range(3, 257))), [trajectory for _, trajectory in pairs])
    drafter = Trained("learned", pupil.network.eval(), (0.5,) * 4)
    engine = Engine(CHECKPOINT, slots=3, drafter=drafter)
    results = engine.transcribe(Request(one.read(), language="en") for one, _ in pairs)
    score = judge(CHECKPOINT, drafter, [t for _, t in pairs], kept=TAPS, device=CPU)
    for (_, trajectory), result in zip(pairs, results, strict=True):
        assert trajectory.tokens[trajectory.opening :].tolist() == list(result.tokens)
        alone = judge(CHECKPOINT, drafter, [trajectory], kept=TAPS, device=CPU)
        assert (alone.rounds, sum(alone.accepted)) == (result.rounds, result.accepted)
    assert score.rounds == sum(result.rounds for result in results)
    assert score.tokens == sum(len(result.tokens) - 1 for result in results)
    assert sum(score.accepted) == sum(result.accepted for result in results)
    assert 0.1 < score.alpha < 1.0, "neither all nor nothing: worth comparing"


def test_silence_is_worth_no_rounds() -> None:
    """No trajectories, no figures, no error."""
    score = judge(
        CHECKPOINT, Trained("x", student().network, (0.5,) * 4), [], kept=TAPS, device=CPU
    )
    assert (score.rounds, score.tau) == (0, 0.0)


def test_an_untrained_drafter_is_measured_as_such() -> None:
    (one,) = teacher().trajectories([noise(3)], "en")
    fresh = Trained("x", student().network, (0.5,) * 4)
    score = judge(CHECKPOINT, fresh, [one], kept=TAPS, device=CPU)
    assert score.tokens == len(one.tokens) - one.opening - 1
    assert score.tau == pytest.approx(score.tokens / score.rounds)
