from collections.abc import Callable

import numpy as np
import pytest
import torch

from model.engine.engine import Engine
from model.engine.graphs import PhaseInputs
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.engine.runner import Runner
from model.engine.warm_up import Measure, measured_draft_length
from model.whisper.measure import median_seconds
from tests.support.references import one_second
from tests.support.tiny import tiny_checkpoint
from tests.support.tiny_drafters import tiny_drafter

CHECKPOINT = tiny_checkpoint(max_source_positions=1500)


def test_warm_up_leaves_the_slots_free() -> None:
    engine = Engine(CHECKPOINT, slots=2)
    engine.warm_up()
    assert engine.occupied == 0


def listen(monkeypatch: pytest.MonkeyPatch, one: Runner) -> set[tuple[object, ...]]:
    """What graphs would be captured for: phase, shapes and constants of every call from now on."""
    shapes: set[tuple[object, ...]] = set()
    call = one.graphs.call

    def noting(phase: Callable[[PhaseInputs], object], inputs: PhaseInputs) -> object:
        shapes.add((phase.__name__, inputs.shape()))
        return call(phase, inputs)

    monkeypatch.setattr(one.graphs, "call", noting)
    return shapes


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_warm_up_captures_all_shapes_needed(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any audio, prompt, language, temperature and text afterwards: no new shape."""
    drafter = tiny_drafter() if slots == 2 else None
    engine = Engine(CHECKPOINT, slots=slots, drafter=drafter, static=True)
    captured = listen(monkeypatch, engine.runner)
    engine.warm_up()
    before = set(captured)
    generator = np.random.default_rng(1)
    transcribe(
        engine,
        [
            Request(
                generator.standard_normal(100 + 30_000 * number).astype(np.float32) * 0.1,
                language=("en", None)[number % 2],
                prompt="x" * (number % 5 * 9),
                temperature=(0.0, 0.9)[number % 3 == 1],
                fitted_window=bool(number % 2),
                draft_tokens=tuple(range(3, 3 + number * 2)),
            )
            for number in range(14)
        ],
    )
    assert captured == before


@pytest.mark.parametrize("measure", [one_second, median_seconds])
@pytest.mark.parametrize("slots", [2, 3, 5])
def test_a_pace_is_measured_for_every_bucket(slots: int, measure: Measure) -> None:
    """Positive times for plain and drafted rounds, and a choice among them, for any slots."""
    times = []

    def noting(work: Callable[[], object]) -> float:
        times.append(measure(work))
        return times[-1]

    drafter = tiny_drafter()
    runner = Runner(
        CHECKPOINT, device=torch.device("cpu"), slots=slots, drafter=drafter, block=4, static=False
    )
    draft_length = measured_draft_length(runner, slots, drafter.acceptance, noting)
    assert {draft_length.choose(rows) for rows in range(1, slots + 1)} <= {0, 1, 2, 4}
    buckets = {2: 2, 3: 3, 5: 4}[slots]
    assert len(times) == buckets * (4 + 3), "k = 0, 1, 2, 4 of the target, 1, 2, 4 of the drafter"
    assert all(time > 0 for time in times)
