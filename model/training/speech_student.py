"""A Speech-Draft in training: every anchor's block step by step, as it will draft (EAGLE-ASR III-D).

The first step starts from the target's features, each later one from this network's own hidden
state: what it will have when it serves. In training the tokens that steps go on from are the
target's, when it is measured its own.
"""

import torch
from torch import Tensor
from torch.nn import functional

from model.checkpoints.load import Checkpoint
from model.drafting.speech_draft import SpeechDraft
from model.training.data.packing import Batch
from model.training.student import Student

_DECAY = 0.8  # of the loss from step to step: the paper's β


class SpeechStudent(Student):
    """Batches in, losses or candidates out. soft: see `Student`."""

    network: SpeechDraft

    def __init__(self, network: SpeechDraft, checkpoint: Checkpoint, *, soft: float = 0.0) -> None:
        weights = _DECAY ** torch.arange(network.architecture.block)
        super().__init__(network, checkpoint, weights=weights, soft=soft)

    def logits(self, batch: Batch) -> Tensor:
        """[rows, anchors, block, draft vocabulary], of steps that go on from the target's tokens."""
        following = (
            batch.places[..., None]
            + 1
            + torch.arange(len(self.weights), device=batch.places.device)
        )
        flat = following.clamp(max=batch.tokens.shape[1] - 1).flatten(1)
        return self.unrolled(batch, batch.tokens.gather(1, flat).view_as(following))

    @torch.no_grad()
    def matches(self, batch: Batch) -> Tensor:
        """[rows, anchors, block] bool: whether each greedy candidate is what the target says.

        Each is drafted behind those before it; what stands behind a wrong one means nothing.
        """
        return self.unrolled(batch, None).argmax(-1) == batch.labels

    def unrolled(self, batch: Batch, following: Tensor | None) -> Tensor:
        """Logits of every step. following: int64 [rows, anchors, block], the token that each step
        is to name and the next one goes on from; None for its own greedy choice.
        """
        network, (rows, count) = self.network, batch.anchors.shape
        before, text, seen = self._past(batch)
        own = torch.eye(count, dtype=torch.bool, device=seen.device).expand(rows, -1, -1)
        acoustic, audible = network.encode(batch.states), batch.audible[:, None, None]
        embedded = functional.embedding(batch.anchors, self.embedding)
        said = []
        for step in range(len(self.weights)):
            # In float32, whatever the products are in: the residual stream must not lose its steps.
            entries = network.enter(before, embedded).float()
            q, *pair = network.project(entries, batch.places + step)
            k, v = (part.transpose(1, 2) for part in pair)
            text = torch.cat((text[0], k), 2), torch.cat((text[1], v), 2)
            seen = torch.cat((seen, own), -1)
            before = network(entries, q, text, seen[:, None], acoustic, audible)
            said.append(self.name(network.norm(before)))
            embedded = (
                functional.embedding(said[-1].argmax(-1), self.head)
                if following is None
                else functional.embedding(following[..., step], self.embedding)
            )
        return torch.stack(said, 2)

    def _past(self, batch: Batch) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
        """What stands before each anchor: its features [rows, anchors, width], keys and values of
        the true entries, and which of those each anchor sees, [rows, anchors, n].
        """
        network, n = self.network, batch.features.shape[1]
        # At index p what the target made of position p - 1.
        fused = functional.pad(network.fuse(batch.features).float(), (0, 0, 1, 0))
        tokens = functional.embedding(batch.tokens[:, :n], self.embedding)
        entries = network.enter(fused[:, :n], tokens).float()
        positions = torch.arange(n, device=fused.device).expand(len(fused), -1)
        _, k, v = network.project(entries, positions)
        rows = torch.arange(len(fused), device=fused.device)[:, None]
        return fused[rows, batch.places], (k.transpose(1, 2), v.transpose(1, 2)), batch.past
