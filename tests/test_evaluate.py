import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from model.drafting.drafter_files import TrainedDrafter
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.training.data.distil import decode_passages
from model.training.data.packing import IGNORED, draw_anchors, lookup_of, pack
from model.training.data.teacher import Trajectory
from model.training.evaluate import evaluate
from model.training.student import Student
from tests.support.lessons import AUX_LAYERS, CPU, passages, teacher
from tests.support.pupils import parallel_student, speech_student
from tests.support.tiny import CHECKPOINT


def trained(pupil: Student, taught: list[Trajectory]) -> Student:
    """It, when it has learned these few by heart, or nearly."""
    lookup = lookup_of(pupil.network.architecture.vocabulary, CHECKPOINT.config.vocab_size)
    optimizer = torch.optim.AdamW(pupil.parameters(), lr=3e-3)
    for step in range(60):
        anchors = [draw_anchors(one, 8, random.Random(step)) for one in taught]
        lesson = pack(taught, anchors, kept=AUX_LAYERS, wanted=AUX_LAYERS, block=4, lookup=lookup)
        assert (lesson.labels != IGNORED).any()
        optimizer.zero_grad()
        pupil(lesson).backward()
        optimizer.step()
    return pupil


@pytest.mark.parametrize("make", [parallel_student, speech_student], ids=["parallel", "speech"])
def test_the_walk_is_what_the_engine_does(
    tmp_path: Path, make: Callable[[tuple[int, ...]], Student], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same drafter over the same audio: as many rounds, tokens and accepted candidates."""
    # As `evaluate` computes: in int8, which serves, a near tie may fall the other way.
    monkeypatch.setattr("model.drafting.drafter_cache.missing_instructions", lambda: ["any"])
    taught = passages(tmp_path, 24)
    kept, _ = decode_passages(teacher(), taught, "en")
    pairs = [(one, trajectory) for one, trajectory in kept if len(trajectory.tokens) < 32]
    pupil = trained(make(tuple(range(3, 257))), [trajectory for _, trajectory in pairs])
    drafter = TrainedDrafter("learned", pupil.network.eval(), (0.5,) * 4)
    engine = Engine(CHECKPOINT, slots=3, drafter=drafter)
    results = transcribe(engine, [Request(one.read(), language="en") for one, _ in pairs])
    score = evaluate(CHECKPOINT, pupil.network, [t for _, t in pairs], kept=AUX_LAYERS, device=CPU)
    for (_, trajectory), result in zip(pairs, results, strict=True):
        assert trajectory.tokens[trajectory.prompt_len :].tolist() == list(result.tokens)
        alone = evaluate(CHECKPOINT, pupil.network, [trajectory], kept=AUX_LAYERS, device=CPU)
        assert (alone.rounds, sum(alone.accepted)) == (result.rounds, result.accepted)
    assert score.rounds == sum(result.rounds for result in results)
    assert score.tokens == sum(len(result.tokens) - 1 for result in results)
    assert sum(score.accepted) == sum(result.accepted for result in results)
    assert 0.1 < score.alpha < 1.0, "neither all nor nothing: worth comparing"


def test_silence_is_worth_no_rounds() -> None:
    score = evaluate(CHECKPOINT, parallel_student().network, [], kept=AUX_LAYERS, device=CPU)
    assert (score.rounds, score.tau) == (0, 0.0)
