import pytest
import torch
from torch import Tensor

from model.drafting.speech_draft import SpeechArchitecture, SpeechDraft, from_target
from tests.support.stage import BLOCK, FEATURES, SEEN, STATES, TOKENS, WHISPER, WIDTH, Stage
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import tiny_speech_draft

TRAINED = tiny_speech_draft(block=BLOCK)
assert isinstance(TRAINED.network, SpeechDraft)
NETWORK = TRAINED.network


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


@pytest.mark.parametrize("anchor", [1, 6])
def test_candidates_are_what_the_whole_sequence_says(anchor: int) -> None:
    """Cached entries and the network without any cache: the same logits at every step."""
    choice = Stage(TRAINED).take(0, anchor).draft()
    assert len(choice.names) == BLOCK
    assert torch.allclose(choice.logits, by_the_book(anchor, choice.names), atol=1e-3)


def test_each_candidate_follows_from_those_before() -> None:
    """Another name at the first step changes the second's logits, not the first's."""
    stage = Stage(TRAINED).take(0, 6)
    one, other = stage.draft(told=(5, 6, 7, 8)), stage.draft(told=(9, 6, 7, 8))
    assert torch.equal(one.logits[0], other.logits[0])
    assert not torch.allclose(one.logits[1], other.logits[1], atol=1e-3)


def test_fewer_candidates_are_the_first_ones() -> None:
    stage = Stage(TRAINED).take(0, 6)
    assert stage.draft(count=2).names == stage.draft().names[:2]


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
