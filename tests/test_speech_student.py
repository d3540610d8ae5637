from dataclasses import replace

import torch
from torch import Tensor

from model.drafting.speech_draft import SlotSpeechDraft
from model.training.data.teacher import Trajectory
from model.whisper.slots import Slots
from tests.support.pupils import batch, lesson_of, packed, speech_student, trajectory
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import whisper_of

BLOCK = 4


def test_every_weight_learns() -> None:
    """Through all steps: the network's own hidden state is not cut off from what made it."""
    pupil = speech_student()
    pupil(batch()).backward()
    for name, parameter in pupil.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.any(), name


def test_steps_go_on_from_the_targets_tokens() -> None:
    one = trajectory(20)
    before, tokens = packed(speech_student(), one, [9])[0], one.tokens.clone()
    tokens[11] = (tokens[11] + 1) % 200
    after = packed(speech_student(), replace(one, tokens=tokens), [9])[0]
    assert torch.allclose(after[:2], before[:2], atol=1e-5)
    assert not torch.allclose(after[2], before[2], atol=1e-3)


def drafted(one: Trajectory, anchor: int) -> list[int]:
    """What the same network drafts when it serves."""
    whisper = whisper_of(CHECKPOINT)
    slots = Slots.allocate(whisper, 1, BLOCK)
    pupil = speech_student()
    bias = CHECKPOINT.tokens.bias(first=False)
    drafter = SlotSpeechDraft(pupil.network, whisper, bias, 1, packed=False)
    names: list[int] = []

    def choose(logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        best = logits.argmax(-1)
        names.append(int(best))
        return best

    drafter.encode(one.states.float()[None], 0)
    positions = torch.arange(len(one.features))[None]
    drafter.remember(one.features.float()[None], one.tokens[None, :-1], positions, 0)
    slots.lengths[0], slots.anchors[0], slots.audio_len[0] = anchor, one.tokens[anchor], 50
    drafter.draft(slots, 1, BLOCK, 64, 50, choose)
    return names


@torch.inference_mode()
def test_candidates_are_those_of_the_drafter_that_serves() -> None:
    """Measured in training as drafted in slots, each step behind its own choice."""
    one = trajectory(20)
    lesson = lesson_of([one], [[6, 9, 15]])
    serving = torch.tensor([drafted(one, anchor) for anchor in (6, 9, 15)])[None]
    assert speech_student().matches(replace(lesson, labels=serving)).all()
    assert not speech_student().matches(replace(lesson, labels=serving + 1)).any()


def test_candidates_of_a_cut_vocabulary_go_on_as_tokens() -> None:
    """Indices into the draft vocabulary are no ids: a whole one of the same ids says the same."""
    every = tuple(range(CHECKPOINT.config.vocab_size))
    lesson = batch()
    with torch.no_grad():
        best = speech_student().unrolled(lesson, None)
        assert torch.equal(speech_student(every).unrolled(lesson, None), best)
        shifted = speech_student(every[3:]).unrolled(lesson, None)
    assert torch.allclose(shifted, best[..., 3:], atol=1e-4)
