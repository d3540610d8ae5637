"""What every drafter over slots keeps to: its proposals follow from the utterance, and from nothing else."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from model.drafting.drafter_files import TrainedDrafter
from tests.support.stage import BLOCK, FEATURES, SEEN, STATES, TOKENS, Stage
from tests.support.tiny_drafters import tiny_drafter, tiny_speech_draft

every_drafter = pytest.mark.parametrize(
    "trained",
    [tiny_drafter(block=BLOCK), tiny_speech_draft(block=BLOCK)],
    ids=["parallel", "speech"],
)


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, atol=1e-3)


@every_drafter
@limits(max_examples=20)
@given(
    rounds=st.lists(st.tuples(st.integers(1, 4), st.integers(0, BLOCK), st.booleans()), max_size=3),
    prompt_tokens=st.integers(1, 6),
)
def test_what_was_rejected_or_only_drafted_leaves_no_trace(
    trained: TrainedDrafter, rounds: list[tuple[int, int, bool]], prompt_tokens: int
) -> None:
    """Any rounds, drafted or plain, with any candidates accepted: as if only the truth had been."""
    stage = Stage(trained).take(0, prompt_tokens, rejected=2)
    done = prompt_tokens
    for emitted, rejected, drafted in rounds:
        if drafted:
            stage.draft()
        stage.take(done, done + emitted, rejected)
        done += emitted
    assert alike(stage.draft().logits, Stage(trained).take(0, done).draft().logits)


@every_drafter
def test_anchor_and_history_matter(trained: TrainedDrafter) -> None:
    stage = Stage(trained).take(0, 6)
    before = stage.draft().logits
    stage.slots.anchors[0] += 1
    assert not torch.equal(stage.draft().logits, before)
    stage.slots.anchors[0] -= 1
    stage.drafter.remember(FEATURES[:, 9:11] * 9, TOKENS[:, 4:6], torch.tensor([[4, 5]]), 0)
    assert not torch.equal(stage.draft().logits, before)


@every_drafter
def test_the_audio_matters_where_it_is_spoken(trained: TrainedDrafter) -> None:
    """Encoder states behind the slot's spoken ones have no influence; those before have."""
    stage = Stage(trained).take(0, 6)
    stage.slots.audio_len[0] = SEEN - 10
    before = stage.draft().logits
    other = STATES.clone()
    other[:, SEEN - 10 :] += torch.randn(1, 10, other.shape[-1]) * 9
    stage.drafter.encode(other, 0)
    assert torch.equal(stage.draft().logits, before)
    other[:, SEEN - 11] += torch.randn(other.shape[-1]) * 9
    stage.drafter.encode(other, 0)
    assert not torch.equal(stage.draft().logits, before)


@every_drafter
def test_a_moved_slot_drafts_the_same(trained: TrainedDrafter) -> None:
    stage = Stage(trained).take(0, 6)
    choice = stage.draft()
    stage.slots.move(0, 1, 6, SEEN)
    stage.drafter.move(0, 1, 6, SEEN)
    stage.drafter.clear(0, 1)
    again = stage.draft(slot=1)
    assert again.names == choice.names
    assert torch.allclose(again.logits, choice.logits, atol=1e-5)


@every_drafter
def test_what_is_not_finite_does_not_reach_the_next_utterance(trained: TrainedDrafter) -> None:
    stage = Stage(trained)
    broken = torch.full_like(FEATURES[:, :9], torch.nan)
    stage.drafter.remember(broken, TOKENS[:, :9], torch.arange(9)[None], 0)
    stage.drafter.clear(0, 1)
    stage.drafter.encode(STATES, 0)
    assert alike(stage.take(0, 3).draft().logits, Stage(trained).take(0, 3).draft().logits)
