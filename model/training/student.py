"""A network in training: between what the target computed and the target's frozen output head.

What all kinds have in common, and the parallel drafter.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.checkpoints.load import Checkpoint
from model.drafting.drafter_files import Network
from model.drafting.parallel import ParallelDrafter
from model.training.data.packing import IGNORED, Batch
from model.training.score import Score, walk

_DECAY = 4.0  # e-folding of the loss along a block (Whisper-Flash, equation 3)
_RULED_OUT = -1e4  # the logit of what may not be emitted; finite, for 0 times it must be 0


class Student(nn.Module, ABC):
    """Batches in, losses out (`forward`), or what walking their transcripts comes to.

    Every anchor's block is proposed from what stands before it. weights: float32 [block], of the loss
    of each candidate. soft: share of the loss that is the cross-entropy to the target's own distribution
    (which needs the target's last block as the last tap) rather than to its greedy token.
    """

    network: Network
    embedding: Tensor
    head: Tensor
    bias: Tensor
    weights: Tensor
    norm_weight: Tensor
    norm_bias: Tensor

    def __init__(
        self, network: Network, checkpoint: Checkpoint, *, weights: Tensor, soft: float
    ) -> None:
        super().__init__()
        plan = network.architecture
        assert not soft or plan.aux_layers[-1] == checkpoint.config.decoder_layers - 1
        self.network = network
        self._soft = soft
        embedding = checkpoint.weights["decoder.embedding.weight"].float()
        ruled_out = checkpoint.tokens.bias(first=False).clamp(min=_RULED_OUT)
        ids = slice(None) if plan.vocabulary is None else torch.tensor(plan.vocabulary)
        for name, tensor in (
            ("embedding", embedding),
            ("head", embedding[ids]),
            ("bias", ruled_out[ids]),
            ("weights", weights),
            ("norm_weight", checkpoint.weights["decoder.norm.weight"].float()),
            ("norm_bias", checkpoint.weights["decoder.norm.bias"].float()),
        ):
            self.register_buffer(name, tensor, persistent=False)

    @abstractmethod
    def logits(self, batch: Batch) -> Tensor:
        """[rows, anchors, block, draft vocabulary], the token rules applied as when serving."""

    def name(self, hidden: Tensor) -> Tensor:
        """Logits […, draft vocabulary], float32, of normalised hidden states […, width]."""
        return functional.linear(hidden, self.head).float() + self.bias

    def forward(self, batch: Batch) -> Tensor:
        """The loss: decayed cross-entropy over every label that counts."""
        counted = batch.labels != IGNORED
        weights = counted * self.weights
        chosen = batch.labels.clamp(min=0)
        logprobs = self.logits(batch).log_softmax(-1)
        losses = -logprobs.gather(-1, chosen[..., None])[..., 0]
        if self._soft:
            soft = -(self.soft_labels(batch) * logprobs).sum(-1)
            losses = (1 - self._soft) * losses + self._soft * soft
        return (losses * weights).sum() / weights.sum().clamp(min=1e-6)

    @torch.no_grad()
    def soft_labels(self, batch: Batch) -> Tensor:
        """The target's distributions over the draft vocabulary, in the shape of the logits."""
        width = self.embedding.shape[1]
        last = batch.features[..., -width:]
        hidden = functional.layer_norm(last, (width,), self.norm_weight, self.norm_bias)
        told = self.name(hidden).softmax(-1)
        # What follows position p is what the target said at p.
        at = batch.places[..., None] + torch.arange(len(self.weights), device=told.device)
        at = at.clamp(max=told.shape[1] - 1)
        rows = torch.arange(len(told), device=told.device)[:, None, None]
        return told[rows, at]

    @torch.no_grad()
    def matches(self, batch: Batch) -> Tensor:
        """[rows, anchors, block] bool: whether each greedy candidate is what the target says."""
        return self.logits(batch).argmax(-1) == batch.labels

    def walk(self, batch: Batch) -> Score:
        """Of a batch of one transcript, with every possible anchor in it."""
        return walk(self.matches(batch)[0].cpu())


class ParallelStudent(Student):
    """A parallel drafter. soft: see `Student`."""

    network: ParallelDrafter

    def __init__(
        self, network: ParallelDrafter, checkpoint: Checkpoint, *, soft: float = 0.0
    ) -> None:
        weights = torch.exp(-torch.arange(network.architecture.block) / _DECAY)
        super().__init__(network, checkpoint, weights=weights, soft=soft)

    def logits(self, batch: Batch) -> Tensor:
        """[rows, anchors, block, draft vocabulary], all candidates of a block at once."""
        network = self.network
        n = batch.features.shape[1]
        positions = torch.arange(n, device=batch.features.device).expand(len(batch.features), -1)
        history = [
            (k.transpose(1, 2), v.transpose(1, 2))
            for k, v in network.remember(batch.features, positions)
        ]
        hidden = network(
            functional.embedding(batch.anchors, self.embedding),
            batch.places,
            history,
            batch.past,
            network.encode(batch.states),
            batch.audible[:, None, None],
        )
        return self.name(hidden)


def rate(step: int, steps: int, peak: float, warm_up: float) -> float:
    """Learning rate of a step: linear warm-up over a share of the steps, then half a cosine to 0."""
    rising = max(1, round(warm_up * steps))
    if step < rising:
        return peak * (step + 1) / rising
    return peak * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))
