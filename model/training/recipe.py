"""Training recipe: every hyperparameter in one record, which checkpoints and drafter files keep."""

from dataclasses import dataclass
from typing import Literal

from transformers import WhisperConfig

from model.drafting.parallel import spread_aux_layers

Kind = Literal["parallel", "speech"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters of a training run. Raises ValueError for a Speech-Draft that cannot be.

    layers: the target's blocks that the drafter's layers are copies of. kind: "parallel", or "speech" for
    a Speech-Draft, which has one layer, rotary positions, history and audio. coverage: share of the
    training tokens in the draft vocabulary; 1 for the whole vocabulary. peak: learning rate. warm_up:
    share of the steps. soft: see `Student`. held_out: share of the first cache's speakers for validation.
    masked: spans of encoder states set to 0 in training, per 100 states.
    """

    layers: tuple[int, ...]
    aux_layers: tuple[int, ...]
    block: int = 8
    steps: int = 4000
    batch: int = 4
    anchors: int = 16
    peak: float = 6e-4
    warm_up: float = 0.04
    weight_decay: float = 0.01
    clip: float = 1.0
    coverage: float = 0.999
    soft: float = 0.0
    rope: bool = True
    history: bool = True
    audio: bool = True
    seed: int = 0
    held_out: float = 0.05
    validate_every: int = 250
    validation: int = 64
    kind: Kind = "parallel"
    masked: float = 0.0

    def __post_init__(self) -> None:
        whole = self.rope and self.history and self.audio
        if self.kind == "speech" and (len(self.layers) != 1 or not whole):
            raise ValueError("a Speech-Draft has one layer, rotation and both memories")


def last_layers(config: WhisperConfig, count: int = 3) -> tuple[int, ...]:
    """The target's last decoder blocks: a drafter learns fastest from them, as they align text and audio."""
    blocks = int(config.decoder_layers)
    return tuple(range(max(0, blocks - count), blocks))


def aux_layers_for(
    config: WhisperConfig, layers: tuple[int, ...], *, soft: bool
) -> tuple[int, ...]:
    """Auxiliary layers: those of A.2, the blocks in front of `layers`, and for `soft` the last block."""
    blocks = int(config.decoder_layers)
    aux_layers = {*spread_aux_layers(blocks), *(layer - 1 for layer in layers if layer)}
    return tuple(sorted(aux_layers | ({blocks - 1} if soft else set())))


def speech_aux_layers(config: WhisperConfig, layer: int, *, soft: bool) -> tuple[int, ...]:
    """A low, a middle and a high block for a Speech-Draft; the high one is in front of `layer`.

    Few blocks give fewer. For `soft` the last block is added.
    """
    high = max(0, layer - 1)
    low = min(1, max(0, high - 2))
    last = {int(config.decoder_layers) - 1} if soft else set()
    return tuple(sorted({low, (low + high) // 2, high} | last))
