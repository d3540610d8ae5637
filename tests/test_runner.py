from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from model.drafting.drafter_files import TrainedDrafter
from model.engine.engine import Engine
from model.engine.requests import Request
from model.engine.runner import Runner
from tests.support.tiny import tiny_checkpoint
from tests.test_engine import tiny_drafter

CHECKPOINT = tiny_checkpoint(max_source_positions=1500)


def runner(
    *, static: bool = False, slots: int = 5, drafter: TrainedDrafter | None = None
) -> Runner:
    return Runner(
        CHECKPOINT,
        device=torch.device("cpu"),
        slots=slots,
        drafter=drafter,
        block=4,
        static=static,
    )


@pytest.mark.parametrize(
    ("seconds", "states"), [(0.1, 500), (4.9, 500), (5.1, 750), (14.0, 1000), (25.1, 1500)]
)
def test_a_fitted_window_is_the_audio_and_five_seconds(seconds: float, states: int) -> None:
    """Rounded up to a multiple of five; a final always has the full window."""
    audio = np.zeros(int(seconds * 16_000), np.float32)
    assert runner().states(Request(audio, fitted_window=True)) == states
    assert runner().states(Request(audio)) == 1500


def test_static_batches_come_in_buckets() -> None:
    """Otherwise they have the size they have."""
    assert [runner(static=True).bucket(rows) for rows in (1, 3, 5, 9)] == [1, 4, 8, 16]
    assert [runner().bucket(rows) for rows in (1, 3, 5)] == [1, 3, 5]


def listen(one: Runner) -> set[tuple[object, ...]]:
    """What graphs would be captured for: phase, shapes and constants of every call from now on."""
    shapes: set[tuple[object, ...]] = set()
    call = one.graphs.call

    def noting(
        phase: Callable[..., Tensor], tensors: dict[str, Tensor], **constants: int | bool
    ) -> Tensor | None:
        sizes = tuple(tensor.shape for tensor in tensors.values())
        shapes.add((phase.__name__, sizes, tuple(sorted(constants.items()))))
        return call(phase, tensors, **constants)

    one.graphs.call = noting  # type: ignore[assignment, method-assign]  # to listen
    return shapes


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_warm_up_captures_every_shape_that_decoding_needs(slots: int) -> None:
    """Any audio, prompt, language, temperature and text afterwards: no new shape."""
    drafter = tiny_drafter() if slots == 2 else None
    engine = Engine(CHECKPOINT, slots=slots, drafter=drafter, static=True)
    captured = listen(engine.runner)
    engine.warm_up()
    before = set(captured)
    generator = np.random.default_rng(1)
    engine.transcribe(
        Request(
            generator.standard_normal(100 + 30_000 * number).astype(np.float32) * 0.1,
            language=("en", None)[number % 2],
            prompt="x" * (number % 5 * 9),
            temperature=(0.0, 0.9)[number % 3 == 1],
            fitted_window=bool(number % 2),
            draft_tokens=tuple(range(3, 3 + number * 2)),
        )
        for number in range(14)
    )
    assert captured == before


@pytest.mark.parametrize("slots", [2, 3, 5])
def test_a_pace_is_measured_for_every_bucket(slots: int) -> None:
    """Positive times for plain and drafted rounds, and a choice among them, for any slots."""
    one = runner(slots=slots, drafter=tiny_drafter())
    draft_length = one.measured_draft_length(slots)
    assert {draft_length.choose(rows) for rows in range(1, slots + 1)} <= {0, 1, 2, 4}
    assert all(time > 0 for times in draft_length._verify.values() for time in times.values())


def test_a_drafter_is_given_up_once() -> None:
    one = runner(drafter=tiny_drafter())
    assert one.give_up_drafter()
    assert not one.give_up_drafter()
