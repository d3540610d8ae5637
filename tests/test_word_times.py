from dataclasses import replace

import pytest
import torch

from model.engine.engine import Engine
from model.engine.offline import transcribe
from tests.support.references import plain
from tests.support.tiny import CHECKPOINT
from tests.support.utterances import GREEDY


def test_no_text_is_lost_for_the_times_of_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that finds those may find no memory; rows that end in the same round are answered."""
    tries = []

    def exhausted(*_: object) -> None:
        tries.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("model.engine.word_times.align", exhausted)
    engine = Engine(CHECKPOINT, slots=4)
    asked = [replace(request, words=True) for request in GREEDY[:4]]
    for one, request in zip(transcribe(engine, asked), GREEDY[:4], strict=True):
        assert one.tokens == plain(request)
        assert one.timed is None
    assert len(tries) == 4
