import torch

from model.engine.rejection_sampler import RejectionOutput
from model.engine.round_output import RoundOutput, pack, unpack

OUTPUT = RejectionOutput(
    tokens=torch.tensor([[5, 51_865, 7], [8, 9, 9]]),
    emitted=torch.tensor([2, 1]),
    accepted=torch.tensor([1, 0]),
    logprobs=torch.tensor([[-0.5, -1.5, 0.0], [-0.25, 0.0, 0.0]]),
)


def test_what_is_packed_is_unpacked() -> None:
    """What lies behind the emitted tokens means nothing; rows that fill a bucket up are left out."""
    first, second = unpack(pack(OUTPUT), 2, prefill=False)
    assert first == RoundOutput([5, 51_865], [-0.5, -1.5], accepted=1)
    assert second == RoundOutput([8], [-0.25], accepted=0)
    assert len(unpack(pack(OUTPUT), 1, prefill=False)) == 1


def test_a_prefill_tells_of_silence() -> None:
    outputs = unpack(pack(OUTPUT, torch.tensor([0.5, 0.25])), 2, prefill=True)
    assert [output.no_speech for output in outputs] == [0.5, 0.25]
    assert [output.tokens for output in outputs] == [[5, 51_865], [8]]
