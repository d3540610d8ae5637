from collections.abc import Callable

from model.drafting.drafter_files import TrainedDrafter
from model.drafting.interface import Drafter, Proposer
from model.drafting.previous_text import PreviousText
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import both_drafters, whisper_of


@both_drafters
def test_trained_networks_over_slots_are_drafters(drafter: Callable[..., TrainedDrafter]) -> None:
    """Mypy checks the signatures; taps and block are what the target and the engine ask for."""
    bias = CHECKPOINT.tokens.bias(first=False)
    one: Drafter = drafter(block=4).over_slots(whisper_of(CHECKPOINT), bias, 2, packed=False)
    assert one.block == 4
    assert list(one.aux_layers) == sorted(set(one.aux_layers))


def test_a_known_text_is_a_proposer() -> None:
    one: Proposer = PreviousText([1, 2, 3])
    one.emit([1])
    assert one.propose(1) == [2]
