from dataclasses import replace

import pytest
import torch

from model.drafting.parallel import (
    SlotDrafter,
    angles,
    audio_states,
    from_target,
    rotate,
    spread_aux_layers,
)
from model.training.student import ParallelStudent
from model.whisper.slots import Slots
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


class Stage:
    """One utterance in slot 0, heard and remembered in pieces."""

    def __init__(self, pieces: list[int], vocabulary: tuple[int, ...] | None = None) -> None:
        self.whisper = whisper_of(CHECKPOINT)
        bias = CHECKPOINT.tokens.bias(first=False)
        self.slots = Slots.allocate(self.whisper, 2, block=4)
        self.drafter = SlotDrafter(tiny_parallel(vocabulary), self.whisper, bias, 2, packed=False)
        generator = torch.Generator().manual_seed(2)
        features = torch.randn(1, sum(pieces), 64, generator=generator)
        self.drafter.encode(torch.randn(1, 100, 32, generator=generator), 0)
        done = 0
        for piece in pieces:
            positions = torch.arange(done, done + piece)[None]
            self.drafter.remember(
                features[:, done : done + piece], torch.zeros_like(positions), positions, 0
            )
            done += piece
        self.slots.lengths[0], self.slots.audio_len[0], self.slots.anchors[0] = done, 100, 5

    @torch.inference_mode()
    def draft(self, slot: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Candidates [1, block] and logits over the whole vocabulary, -inf where it was cut."""
        named: list[torch.Tensor] = []

        def choose(logits: torch.Tensor, ids: torch.Tensor | None, at: int) -> torch.Tensor:
            assert at == 0
            whole = torch.full((*logits.shape[:2], CHECKPOINT.tokens.vocabulary), -torch.inf)
            whole[..., slice(None) if ids is None else ids] = logits
            named.extend((whole.argmax(-1), whole))
            return whole.argmax(-1)

        self.drafter.draft(self.slots, slot + 1, 4, 64, 100, choose)
        candidates, logits = named
        return candidates[slot:], logits[slot:]


@pytest.mark.parametrize("pieces", [[1, 2, 3], [2, 4]])
def test_cached_history_is_the_history(pieces: list[int]) -> None:
    whole, parts = Stage([6]).draft(), Stage(pieces).draft()
    assert torch.equal(whole[0], parts[0])
    assert torch.allclose(whole[1], parts[1], atol=1e-3)


def test_rejected_positions_are_not_seen() -> None:
    stage = Stage([6])
    before = stage.draft()[1].clone()
    none = torch.zeros(1, 3, dtype=torch.int64)
    stage.drafter.remember(torch.randn(1, 3, 64) * 9, none, torch.tensor([[6, 7, 8]]), 0)
    assert torch.equal(stage.draft()[1], before)
    stage.drafter.remember(torch.randn(1, 1, 64) * 9, none[:, :1], torch.tensor([[5]]), 0)
    assert not torch.allclose(stage.draft()[1], before, atol=1e-3)


def test_both_memories_matter() -> None:
    """Other audio or another anchor gives other logits."""
    stage = Stage([6])
    before = stage.draft()[1].clone()
    stage.slots.anchors[0] = 6
    assert not torch.allclose(stage.draft()[1], before, atol=1e-3)
    stage.slots.anchors[0] = 5
    stage.drafter.encode(torch.randn(1, 100, 32), 0)
    assert not torch.allclose(stage.draft()[1], before, atol=1e-3)


def test_a_moved_slot_drafts_the_same() -> None:
    stage = Stage([6])
    candidates, logits = stage.draft()
    stage.slots.move(0, 1, 6, 100)
    stage.drafter.move(0, 1, 6, 100)
    again = stage.draft(1)
    assert torch.equal(again[0], candidates)
    assert torch.equal(again[1], logits)


def test_a_cut_vocabulary_proposes_nothing_else() -> None:
    """Logits are -inf elsewhere and the same inside; suppressed tokens stay out."""
    vocabulary = (1, 5, 9, 100, 256)
    whole, cut = Stage([6]).draft()[1], Stage([6], vocabulary).draft()
    assert set(cut[0].flatten().tolist()) <= set(vocabulary)
    inside = list(vocabulary)
    assert torch.allclose(cut[1][..., inside], whole[..., inside], atol=1e-5)
    outside = torch.ones(whole.shape[-1], dtype=torch.bool)
    outside[inside] = False
    assert (cut[1][..., outside] == -torch.inf).all()
    assert (cut[1][..., 1] == -torch.inf).all()  # suppressed in this checkpoint


def test_a_fresh_drafter_begins_as_the_target() -> None:
    layers = (tiny_parallel().layers, whisper_of(CHECKPOINT).decoder.layers)
    pairs = zip(*(one.state_dict().values() for one in layers), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_silence_behind_the_speech_is_not_heard() -> None:
    stage = Stage([6])
    stage.slots.audio_len[0] = 60
    states = torch.randn(1, 100, 32)
    stage.drafter.encode(states, 0)
    before = stage.draft()[1].clone()
    states[:, 60:] += 9.0 * torch.randn(1, 40, 32)
    stage.drafter.encode(states, 0)
    assert torch.equal(stage.draft()[1], before)
    states[:, 59] += 9.0 * torch.randn(32)
    stage.drafter.encode(states, 0)
    assert not torch.allclose(stage.draft()[1], before, atol=1e-3)


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
