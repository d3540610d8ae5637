"""A Speech-Draft in training: every anchor's block is unrolled step by step (EAGLE-ASR III-D).

The first step starts from the target's features, each later one from the network's own hidden state, as
when it serves. The steps' tokens are the target's in training, and the network's own in evaluation.
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
    """A Speech-Draft. soft: see `Student`."""

    network: SpeechDraft

    def __init__(self, network: SpeechDraft, checkpoint: Checkpoint, *, soft: float = 0.0) -> None:
        weights = _DECAY ** torch.arange(network.architecture.block)
        super().__init__(network, checkpoint, weights=weights, soft=soft)

    def logits(self, batch: Batch) -> Tensor:
        """[rows, anchors, block, draft vocabulary], of steps over the target's tokens."""
        offsets = 1 + torch.arange(len(self.weights), device=batch.positions.device)
        following = batch.positions[..., None] + offsets
        flat = following.clamp(max=batch.tokens.shape[1] - 1).flatten(1)
        return self.unrolled(batch, batch.tokens.gather(1, flat).view_as(following))

    @torch.no_grad()
    def matches(self, batch: Batch) -> Tensor:
        """[rows, anchors, block] bool: whether each greedy candidate is the target's token.

        Each follows the network's own candidates; values behind the first false one mean nothing.
        """
        return self.unrolled(batch, None).argmax(-1) == batch.labels

    def unrolled(self, batch: Batch, following: Tensor | None) -> Tensor:
        """Logits of every step.

        following: int64 [rows, anchors, block], the token that each step predicts and the next one
        embeds; None for the network's own greedy choice.
        """
        network, (rows, count) = self.network, batch.anchors.shape
        before, text, text_mask = self._context(batch)
        own = torch.eye(count, dtype=torch.bool, device=text_mask.device).expand(rows, -1, -1)
        acoustic, audio_mask = network.encode(batch.states), batch.audio_mask[:, None, None]
        embedded = functional.embedding(batch.anchors, self.embedding)
        steps: list[Tensor] = []
        for step in range(len(self.weights)):
            # The residual stream is float32, whatever the products are: small steps must not be lost.
            entries = network.enter(before, embedded).float()
            q, *pair = network.project(entries, batch.positions + step)
            k, v = (part.transpose(1, 2) for part in pair)
            text = torch.cat((text[0], k), 2), torch.cat((text[1], v), 2)
            text_mask = torch.cat((text_mask, own), -1)
            before = network(entries, q, text, text_mask[:, None], acoustic, audio_mask)
            steps.append(self.token_logits(network.norm(before)))
            embedded = (
                functional.embedding(steps[-1].argmax(-1), self.head)
                if following is None
                else functional.embedding(following[..., step], self.embedding)
            )
        return torch.stack(steps, 2)

    def _context(self, batch: Batch) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
        """Features before each anchor [rows, anchors, width]; keys and values of the true entries; the
        mask of entries for each anchor, bool [rows, anchors, n].
        """
        network, n = self.network, batch.features.shape[1]
        # Index p has the target's features at position p - 1.
        fused = functional.pad(network.fuse(batch.features).float(), (0, 0, 1, 0))
        tokens = functional.embedding(batch.tokens[:, :n], self.embedding)
        entries = network.enter(fused[:, :n], tokens).float()
        positions = torch.arange(n, device=fused.device).expand(len(fused), -1)
        _, k, v = network.project(entries, positions)
        rows = torch.arange(len(fused), device=fused.device)[:, None]
        return (
            fused[rows, batch.positions],
            (k.transpose(1, 2), v.transpose(1, 2)),
            batch.history_mask,
        )
