from dataclasses import replace

import pytest
import torch

from model.engine.engine import Engine
from model.engine.offline import transcribe
from tests.support.tiny import CHECKPOINT, changed
from tests.support.utterances import GREEDY, REQUESTS


def test_transcribe_keeps_the_order() -> None:
    results = transcribe(Engine(CHECKPOINT, slots=3), REQUESTS)
    assert [result.request for result in results] == REQUESTS


def test_broken_weights_fail_every_request_in_words() -> None:
    """Transcribe raises what step would return."""
    poison = changed(CHECKPOINT.weights, "decoder.norm.bias", lambda bias: bias.fill_(torch.nan))
    engine = Engine(replace(CHECKPOINT, weights=poison), slots=1)
    with pytest.raises(ValueError, match="not finite"):
        transcribe(engine, [REQUESTS[0]])


def test_what_is_refused_leaves_nothing_behind() -> None:
    """Not even what was to be decoded along with it."""
    engine = Engine(CHECKPOINT, slots=2)
    with pytest.raises(ValueError, match="temperature"):
        transcribe(engine, [GREEDY[0], replace(GREEDY[1], temperature=9.0)])
    assert not engine.occupied
