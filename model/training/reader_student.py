"""A reader in training: the whole transcript from the encoder's states, without an alignment given.

Its loss is CTC's (Graves et al. 2006), over what the frozen target wrote.
"""

import torch
from torch import Tensor
from torch.nn import functional

from model.checkpoints.load import Checkpoint
from model.drafting.previous_text import PreviousText
from model.drafting.reading import NOTHING, STRIDE, Reader, collapse
from model.engine.engine import BLOCK
from model.training.data.packing import IGNORED, Batch
from model.training.score import Score
from model.training.student import Student


class ReaderStudent(Student):
    """Batches in, losses or scores out. Takes no notice of anchors and features."""

    network: Reader

    def __init__(self, network: Reader, checkpoint: Checkpoint) -> None:
        super().__init__(network, checkpoint)
        self._ids = network.architecture.vocabulary
        self._eot = checkpoint.tokens.eot

    def logits(self, batch: Batch) -> Tensor:
        """[rows, steps, 1 + draft vocabulary], the first being the blank's; without token rules."""
        odd = batch.states.shape[1] % STRIDE
        states = functional.pad(batch.states, (0, 0, 0, odd))
        audible = functional.pad(batch.audible, (0, odd))
        named: Tensor = self.network(
            states, audible, lambda hidden: functional.linear(hidden, self.head)
        )
        return named

    def forward(self, batch: Batch) -> Tensor:
        """The loss: of the tokens that the reader can name, per token."""
        logits = self.logits(batch)
        named = batch.text != IGNORED
        # CTC asks for few of the names: the others count in the normalisation alone.
        ids, places = torch.unique(batch.text[named] + 1, return_inverse=True)
        wanted = torch.cat((ids.new_zeros(1), ids))
        logprobs = logits[..., wanted].float() - logits.logsumexp(-1, keepdim=True).float()
        return functional.ctc_loss(
            logprobs.transpose(0, 1),
            places + 1,
            self._steps(batch),
            named.sum(1),
            zero_infinity=True,  # of a text too long for its audio
        )

    def _steps(self, batch: Batch) -> Tensor:
        """int64 [rows]: how many steps hold audio."""
        return -(-batch.audible.sum(1) // STRIDE)

    @torch.no_grad()
    def walk(self, batch: Batch) -> Score:
        """Its reading verified by the prefill as a whole, then re-aligned as the engine does it."""
        steps = int(self._steps(batch)[0])
        logits = self.logits(batch)[0, :steps] + functional.pad(self.bias, (1, 0))
        best = (logits.argmax(-1) - 1).tolist()
        names = [self._ids[place] if place >= 0 else NOTHING for place in best]
        reading = PreviousText([*collapse(names), self._eot])
        truth = [*batch.anchors[0].tolist(), self._eot]
        proposed, accepted, emitted = list[int](), list[int](), list[int]()
        while (done := sum(emitted)) < len(truth):
            rest = truth[done:]
            draft = reading.propose(BLOCK if done else len(names) + 1)
            agree = [a == b for a, b in zip(draft, rest, strict=False)]
            kept = [*agree, False].index(False)
            proposed.append(len(draft))
            accepted.append(kept)
            emitted.append(len(rest[: kept + 1]))
            reading.emit(rest[: kept + 1])
        return Score(tuple(proposed), tuple(accepted), tuple(emitted))
