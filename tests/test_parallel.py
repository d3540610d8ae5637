from dataclasses import replace

import pytest
import torch

from model.drafting.parallel import angles, audio_states, from_target, rotate, spread_aux_layers
from model.training.student import ParallelStudent
from tests.support.pupils import packed, trajectory
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import tiny_parallel, whisper_of


@pytest.mark.parametrize(
    ("blocks", "aux_layers"),
    [
        (32, (1, 8, 15, 22, 29)),
        (12, (1, 3, 5, 7, 9)),
        (6, (0, 1, 2, 4, 5)),
        (4, (0, 1, 2, 3)),
        (2, (0, 1)),
    ],
)
def test_aux_layers_are_spread_as_in_the_paper(blocks: int, aux_layers: tuple[int, ...]) -> None:
    assert spread_aux_layers(blocks) == aux_layers


def test_rotation_shows_distance_alone() -> None:
    """RoPE: products of rotated vectors depend on the difference of their positions."""
    q, k = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def product(a: int, b: int) -> torch.Tensor:
        turned = (rotate(x, angles(torch.tensor([[at]]), 16)) for x, at in ((q, a), (k, b)))
        return (next(turned) * next(turned)).sum()

    assert torch.allclose(product(3, 1), product(43, 41), atol=1e-4)
    assert not torch.allclose(product(3, 1), product(4, 1), atol=1e-3)


def test_a_fresh_drafter_begins_as_the_target() -> None:
    layers = (tiny_parallel().layers, whisper_of(CHECKPOINT).decoder.layers)
    pairs = zip(*(one.state_dict().values() for one in layers), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize(
    ("samples", "states"), [(2, 50), (16_000, 50), (16_001, 100), (480_000, 1500)]
)
def test_audio_states_are_whole_seconds(samples: int, states: int) -> None:
    assert audio_states(samples, 1500) == states


@pytest.mark.parametrize("lacking", ["history", "audio"])
def test_a_memory_can_be_left_out(lacking: str) -> None:
    """For the ablations: without one of the memories its content changes nothing."""
    whole = tiny_parallel().architecture
    architecture = replace(whole, history=lacking != "history", audio=lacking != "audio")
    drafter = from_target(whisper_of(CHECKPOINT), architecture, blocks=(0, 1))
    one, two = trajectory(12), trajectory(12, seed=1)
    if lacking == "history":
        other = replace(one, features=two.features)
    else:
        other = replace(one, states=two.states)
    pupil = ParallelStudent(drafter, CHECKPOINT)
    assert torch.equal(packed(pupil, one, [6]), packed(pupil, other, [6]))


def test_absolute_positions_tell_places_apart() -> None:
    drafter = from_target(
        whisper_of(CHECKPOINT), replace(tiny_parallel().architecture, rope=False), blocks=(0, 1)
    )
    assert drafter.places is not None
    assert torch.equal(drafter.places.weight, whisper_of(CHECKPOINT).decoder.positions)
