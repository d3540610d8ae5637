import torch

from model.engine.runner import Runner
from model.engine.sequence import Proposal, Sequence
from tests.support.references import plain
from tests.support.tiny import CHECKPOINT
from tests.support.utterances import GREEDY


@torch.inference_mode()
def test_a_round_is_told_row_by_row() -> None:
    """Prefill and one round of two sequences: typed outputs, whatever is proposed."""
    one = Runner(
        CHECKPOINT, device=torch.device("cpu"), slots=2, drafter=None, block=4, static=True
    )
    sequences = [Sequence(request, "en") for request in GREEDY[:2]]
    assert one.encode(sequences, 0, one.window) is None, "they have a language"
    for sequence in sequences:
        sequence.set_prompt(one.tokens, one.context)
    outputs = one.prefill(sequences, [Proposal(), Proposal()], 0, one.window)
    for sequence, output in zip(sequences, outputs, strict=True):
        assert output.tokens == list(plain(sequence.request)[:1])
        assert output.no_speech is not None
        sequence.append_output(Proposal(), output)
    right = Proposal(list(plain(GREEDY[0])[1:4]))
    first, second = one.round(sequences, [right, Proposal()])
    assert (first.tokens, first.accepted) == (list(plain(GREEDY[0])[1:5]), 3)
    assert (second.tokens, second.accepted) == (list(plain(GREEDY[1])[1:2]), 0)
    assert all(len(output.logprobs) == len(output.tokens) for output in (first, second))
    assert first.no_speech is None
