import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.drafting.drafter_files import TrainedReader
from model.drafting.reading import (
    NOTHING,
    Reader,
    ReaderArchitecture,
    SlotReader,
    collapse,
    from_encoder,
)
from model.engine.engine import Engine
from model.whisper.network import Whisper
from tests.support.oracles import run_shuffled
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import tiny_drafter
from tests.support.utterances import GREEDY, WARM
from tests.test_engine import PLAIN

VOCABULARY = tuple(range(0, 200, 3))
TARGET = Whisper.from_weights(
    CHECKPOINT.config, CHECKPOINT.weights, torch.device("cpu"), torch.float32
)


def tiny_reader() -> Reader:
    """Untrained: it reads something, seldom what the target says."""
    torch.manual_seed(5)
    return from_encoder(TARGET, ReaderArchitecture(2, VOCABULARY), (0, 1))


@given(st.lists(st.integers(NOTHING, 3)))
def test_a_reading_collapses(names: list[int]) -> None:
    """Equal neighbours are one token; what lies between two makes them two."""
    text = collapse(names)
    assert NOTHING not in text
    assert len(text) <= len(names)
    doubled = [name for name in names for _ in range(2)]
    assert collapse(doubled) == text
    parted = [piece for token in text for piece in (token, NOTHING)]
    assert collapse(parted) == text


def test_silence_behind_the_speech_is_not_read() -> None:
    """What lies behind the spoken states changes nothing, and nothing is read there."""
    reader = SlotReader(tiny_reader(), TARGET, CHECKPOINT.tokens.bias(first=False), packed=False)
    states = torch.randn(2, 100, 32, generator=torch.Generator().manual_seed(1))
    audio_len = torch.tensor([100, 50])
    with torch.inference_mode():
        names = reader.read(states, audio_len)
        states[1, 50:] = 9.0
        again = reader.read(states, audio_len)
        alone = reader.read(states[1:, :50], audio_len[1:])
    assert torch.equal(names, again)
    assert (names[1, 25:] == NOTHING).all()
    assert torch.equal(names[1:, :25], alone)
    assert set(names.flatten().tolist()) <= {NOTHING, *VOCABULARY}


def test_suppressed_tokens_are_not_read() -> None:
    bias = torch.zeros(CHECKPOINT.tokens.vocabulary)
    bias[list(VOCABULARY[1:])] = -torch.inf
    reader = SlotReader(tiny_reader(), TARGET, bias, packed=False)
    with torch.inference_mode():
        names = reader.read(torch.randn(1, 100, 32), torch.tensor([100]))
    assert set(names.flatten().tolist()) <= {NOTHING, VOCABULARY[0]}


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("slots", [1, 2, 4, 8])
@pytest.mark.parametrize("drafted", [False, True])
def test_a_reader_changes_no_token(slots: int, static: bool, drafted: bool) -> None:
    """Alone, or before a drafter; sampled rows, too, as long as no drafter draws for them."""
    engine = Engine(
        CHECKPOINT,
        slots=slots,
        reader=TrainedReader("untrained", tiny_reader()),
        drafter=tiny_drafter() if drafted else None,
        static=static,
    )
    requests = GREEDY if drafted else GREEDY + WARM
    results = run_shuffled(engine, requests, random.Random(slots))
    assert all(one.tokens == PLAIN[id(one.request)] for one in results)
    assert sum(one.proposed for one in results)


class Dice:
    """Stands for a pace, and chooses anything."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, rows: int) -> int:
        assert rows
        return self._random.choice([0, 1, 2, 4, 8])

    def learn(self, proposed: int, accepted: int) -> None:
        assert 0 <= accepted <= proposed


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_a_block_that_changes_from_round_to_round_changes_no_token(slots: int) -> None:
    """Nor do readings beside it; nor sampled rows, whose blocks stay as they are."""

    def engine_of(slots: int) -> Engine:
        reader = TrainedReader("tiny", tiny_reader())
        return Engine(CHECKPOINT, slots=slots, drafter=tiny_drafter(), reader=reader)

    alone = {id(request): engine_of(1).transcribe([request])[0].tokens for request in WARM}
    engine = engine_of(slots)
    engine._draft_length = Dice(slots)  # type: ignore[assignment]  # what a pace is to the engine
    for one in run_shuffled(engine, GREEDY + WARM, random.Random(slots)):
        assert one.tokens == (PLAIN | alone)[id(one.request)]
