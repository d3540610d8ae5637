import random
from collections.abc import Callable

import pytest

from model.drafting.draft_length import DraftLength
from model.drafting.drafter_files import TrainedDrafter
from model.engine.engine import Engine
from model.engine.offline import transcribe
from tests.support.oracles import run_shuffled
from tests.support.references import one_second, plain
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import both_drafters, tiny_drafter
from tests.support.utterances import GREEDY, WARM


@both_drafters
def test_a_drafter_never_right_is_left_alone(drafter: Callable[..., TrainedDrafter]) -> None:
    """After the first rounds the pace chooses plain passes, but for a probe now and then."""
    engine = Engine(CHECKPOINT, slots=1, drafter=drafter())
    engine.warm_up(one_second)
    draft_length = engine.planner.draft_length
    assert draft_length is not None
    for _ in range(500):
        draft_length.learn(8, 0)
    assert sum(draft_length.choose(1) > 0 for _ in range(200)) <= 200 / 40 + 1


class Dice(DraftLength):
    """Chooses anything."""

    def __init__(self, seed: int) -> None:
        super().__init__({}, {}, ())
        self.random = random.Random(seed)

    def choose(self, rows: int) -> int:
        assert rows
        return self.random.choice([0, 1, 2, 4, 8])

    def learn(self, proposed: int, accepted: int) -> None:
        assert 0 <= accepted <= proposed


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_a_block_that_changes_from_round_to_round_changes_no_token(slots: int) -> None:
    """Nor do sampled rows beside it, whose blocks stay as they are."""
    wanted = {request: plain(request) for request in GREEDY}
    for request in WARM:
        engine = Engine(CHECKPOINT, slots=1, drafter=tiny_drafter())
        wanted[request] = transcribe(engine, [request])[0].tokens
    engine = Engine(CHECKPOINT, slots=slots, drafter=tiny_drafter())
    engine.planner.draft_length = Dice(slots)
    for one in run_shuffled(engine, GREEDY + WARM, random.Random(slots)):
        assert one.tokens == wanted[one.request]
