from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.drafting.speech_draft import (
    SlotSpeechDraft,
    SpeechArchitecture,
    from_target,
)
from model.whisper.slots import Slots
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import whisper_of

WHISPER = whisper_of(CHECKPOINT)
WIDTH, BLOCK, SEEN = CHECKPOINT.config.d_model, 4, 40
GENERATOR = torch.Generator().manual_seed(2)
# An utterance: what the target emitted and made of it, and what it heard.
TOKENS = torch.randint(200, (1, 20), generator=GENERATOR)
FEATURES = torch.randn(1, 20, 2 * WIDTH, generator=GENERATOR)
STATES = torch.randn(1, SEEN, WIDTH, generator=GENERATOR)


NETWORK = from_target(WHISPER, SpeechArchitecture(BLOCK, (0, 1)), block=1)


@torch.inference_mode()
def by_the_book(anchor: int, names: list[int]) -> Tensor:
    """Logits [block, vocabulary] behind position `anchor`, every step over the whole sequence anew.

    names: the candidates that later steps go on from.
    """
    before = torch.cat((torch.zeros(1, 1, WIDTH), NETWORK.fuse(FEATURES)[:, :anchor]), 1)
    tokens = TOKENS[0, : anchor + 1].tolist()
    bias = CHECKPOINT.tokens.bias(first=False)
    said = []
    for name in names:
        n = before.shape[1]
        entries = NETWORK.enter(before, WHISPER.decoder.embedding(torch.tensor([tokens])))
        q, k, v = NETWORK.project(entries, torch.arange(n)[None])
        hidden = NETWORK(
            entries,
            q,
            (k.transpose(1, 2), v.transpose(1, 2)),
            torch.ones(n, n, dtype=torch.bool).tril()[None, None],
            NETWORK.encode(STATES),
            torch.ones(1, 1, 1, SEEN, dtype=torch.bool),
        )[:, -1:]
        said.append(WHISPER.decoder.logits(NETWORK.norm(hidden))[0, 0] + bias)
        before = torch.cat((before, hidden), 1)
        tokens.append(name)
    return torch.stack(said)


@dataclass
class Choice:
    """Names candidates by their logits, or as told, and keeps what it was shown."""

    told: list[int]
    names: list[int]
    logits: list[Tensor]

    def __call__(self, logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        assert ids is None
        assert at == len(self.names)
        assert logits.shape[1] == 1
        best = logits.argmax(-1)
        if self.told:
            best[-1] = self.told[at]
        self.names.append(int(best[-1]))
        self.logits.append(logits[-1, 0])
        return best


class Stage:
    """The utterance in slot 0 of two."""

    def __init__(self) -> None:
        self.slots = Slots.allocate(WHISPER, 2, BLOCK)
        bias = CHECKPOINT.tokens.bias(first=False)
        self.drafter = SlotSpeechDraft(NETWORK, WHISPER, bias, 2, packed=False)
        self.drafter.encode(STATES, 0)
        self.slots.audio_len[0] = SEEN

    def take(self, first: int, last: int, rejected: int = 0) -> None:
        """A target pass over positions first … last - 1, and `rejected` wrong ones behind."""
        features = torch.cat((FEATURES[:, first:last], torch.randn(1, rejected, 2 * WIDTH) * 9), 1)
        tokens = torch.cat((TOKENS[:, first:last], torch.randint(200, (1, rejected))), 1)
        positions = torch.arange(first, last + rejected)[None]
        self.drafter.remember(features, tokens, positions, 0)
        self.slots.lengths[0], self.slots.anchors[0] = last, TOKENS[0, last]

    @torch.inference_mode()
    def draft(self, *, slot: int = 0, count: int = BLOCK, told: tuple[int, ...] = ()) -> Choice:
        choice = Choice(list(told), [], [])
        self.drafter.draft(self.slots, slot + 1, count, 64, SEEN, choice)
        return choice


@pytest.mark.parametrize("anchor", [1, 6])
def test_candidates_are_what_the_whole_sequence_says(anchor: int) -> None:
    """Cached entries and the network without any cache: the same logits at every step."""
    stage = Stage()
    stage.take(0, anchor)
    choice = stage.draft()
    wanted = by_the_book(anchor, choice.names)
    assert torch.allclose(torch.stack(choice.logits), wanted, atol=1e-3)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, BLOCK), st.booleans()), max_size=3),
    st.integers(1, 6),
)
def test_what_was_rejected_or_only_drafted_leaves_no_trace(
    rounds: list[tuple[int, int, bool]], prompt_tokens: int
) -> None:
    """Any rounds, drafted or plain, with any candidates accepted: as if only the truth had been."""
    stage = Stage()
    stage.take(0, prompt_tokens, rejected=2)
    done = prompt_tokens
    for emitted, rejected, drafted in rounds:
        if drafted:
            stage.draft()
        stage.take(done, done + emitted, rejected)
        done += emitted
    choice = stage.draft()
    assert torch.allclose(torch.stack(choice.logits), by_the_book(done, choice.names), atol=1e-3)


def test_each_candidate_follows_from_those_before() -> None:
    """Another name at the first step changes the second's logits, not the first's."""
    stage = Stage()
    stage.take(0, 6)
    one, other = stage.draft(told=(5, 6, 7, 8)), stage.draft(told=(9, 6, 7, 8))
    assert torch.equal(one.logits[0], other.logits[0])
    assert not torch.allclose(one.logits[1], other.logits[1], atol=1e-3)


def test_fewer_candidates_are_the_first_ones() -> None:
    stage = Stage()
    stage.take(0, 6)
    assert stage.draft(count=2).names == stage.draft().names[:2]


def test_the_audio_matters_where_it_is_spoken() -> None:
    """Encoder states behind the slot's spoken ones have no influence; those before have."""
    stage = Stage()
    stage.take(0, 6)
    stage.slots.audio_len[0] = SEEN - 10
    before = stage.draft().logits[-1]
    other = STATES.clone()
    other[:, SEEN - 10 :] += 9.0
    stage.drafter.encode(other, 0)
    assert torch.equal(stage.draft().logits[-1], before)
    stage.drafter.encode(other + 1.0, 0)
    assert not torch.allclose(stage.draft().logits[-1], before, atol=1e-3)


def test_a_moved_slot_drafts_the_same() -> None:
    """Its entries, what it heard, and the features that the anchor's entry is made of."""
    stage = Stage()
    stage.take(0, 6)
    choice = stage.draft()
    stage.slots.move(0, 1, 6, SEEN)
    stage.drafter.move(0, 1, 6, SEEN)
    stage.drafter.clear(0, 1)
    again = stage.draft(slot=1)
    assert again.names == choice.names
    assert torch.allclose(torch.stack(again.logits), torch.stack(choice.logits), atol=1e-5)


def test_a_cleared_slot_is_clean() -> None:
    stage = Stage()
    stage.drafter.remember(
        torch.full((1, 9, 2 * WIDTH), torch.nan), TOKENS[:, :9], torch.arange(9)[None], 0
    )
    stage.drafter.clear(0, 1)
    stage.drafter.encode(STATES, 0)
    stage.take(0, 3)
    choice = stage.draft()
    assert torch.allclose(torch.stack(choice.logits), by_the_book(3, choice.names), atol=1e-3)


def test_a_fresh_one_begins_as_the_target() -> None:
    """Its block is the target's, and an entry the state that enters that block, and the embedding."""
    layers = (NETWORK.layer, WHISPER.decoder.layers[1])
    pairs = zip(*(one.state_dict().values() for one in layers), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
    low, high = FEATURES[..., :WIDTH], FEATURES[..., WIDTH:]
    embedded = WHISPER.decoder.embedding(TOKENS)
    with torch.no_grad():
        entries = NETWORK.enter(NETWORK.fuse(FEATURES), embedded)
        assert torch.allclose(entries, low + embedded, atol=1e-5)
        untapped = from_target(WHISPER, SpeechArchitecture(BLOCK, (1,)), block=1)
        assert torch.allclose(untapped.fuse(high), high, atol=1e-6)
