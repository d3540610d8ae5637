"""A drafter in training: the network between the target's features and its frozen output head."""

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
_SUPPRESSED = -1e4  # the logit of suppressed tokens; finite, because 0 times it must be 0


class Student(nn.Module, ABC):
    """A drafter in training: losses of batches (`forward`), and scores of transcripts (`walk`).

    weights: float32 [block], of each candidate's loss. soft: share of the loss that is the cross-entropy
    to the target's distribution rather than to its greedy token; it needs the target's last block as the
    last auxiliary layer.
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
        architecture = network.architecture
        assert not soft or architecture.aux_layers[-1] == checkpoint.config.decoder_layers - 1
        self.network = network
        self._soft = soft
        embedding = checkpoint.weights["decoder.embedding.weight"].float()
        bias = checkpoint.tokens.bias(first=False).clamp(min=_SUPPRESSED)
        vocabulary = architecture.vocabulary
        ids = slice(None) if vocabulary is None else torch.tensor(vocabulary)
        for name, tensor in (
            ("embedding", embedding),
            ("head", embedding[ids]),
            ("bias", bias[ids]),
            ("weights", weights),
            ("norm_weight", checkpoint.weights["decoder.norm.weight"].float()),
            ("norm_bias", checkpoint.weights["decoder.norm.bias"].float()),
        ):
            self.register_buffer(name, tensor, persistent=False)

    @abstractmethod
    def logits(self, batch: Batch) -> Tensor:
        """[rows, anchors, block, draft vocabulary], with the token rules applied."""

    def token_logits(self, hidden: Tensor) -> Tensor:
        """Logits […, draft vocabulary], float32, from normalised hidden states […, width]."""
        return functional.linear(hidden, self.head).float() + self.bias

    def forward(self, batch: Batch) -> Tensor:
        """The loss: weighted cross-entropy over the labels that are not `IGNORED`."""
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
        """The target's distributions [rows, anchors, block, draft vocabulary]."""
        width = self.embedding.shape[1]
        last = batch.features[..., -width:]
        hidden = functional.layer_norm(last, (width,), self.norm_weight, self.norm_bias)
        target = self.token_logits(hidden).softmax(-1)
        # The distribution at position p is that of the token at p + 1.
        at = batch.positions[..., None] + torch.arange(len(self.weights), device=target.device)
        at = at.clamp(max=target.shape[1] - 1)
        rows = torch.arange(len(target), device=target.device)[:, None, None]
        return target[rows, at]

    @torch.no_grad()
    def matches(self, batch: Batch) -> Tensor:
        """[rows, anchors, block] bool: whether each greedy candidate is the target's token."""
        return self.logits(batch).argmax(-1) == batch.labels

    def walk(self, batch: Batch) -> Score:
        """The score of a batch of one transcript, with all of its `possible_anchors`."""
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
        """[rows, anchors, block, draft vocabulary], with all candidates of a block at once."""
        network = self.network
        n = batch.features.shape[1]
        positions = torch.arange(n, device=batch.features.device).expand(len(batch.features), -1)
        history = [
            (k.transpose(1, 2), v.transpose(1, 2))
            for k, v in network.remember(batch.features, positions)
        ]
        hidden = network(
            functional.embedding(batch.anchors, self.embedding),
            batch.positions,
            history,
            batch.history_mask,
            network.encode(batch.states),
            batch.audio_mask[:, None, None],
        )
        return self.token_logits(hidden)


def learning_rate(step: int, steps: int, peak: float, warm_up: float) -> float:
    """Learning rate of a step: linear warm-up over a share of the steps, then cosine decay to 0."""
    warm = max(1, round(warm_up * steps))
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
