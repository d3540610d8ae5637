"""Untrained drafters of the tiny Whisper."""

import pytest
import torch

from model.checkpoints.load import Checkpoint
from model.drafting.drafter_files import TrainedDrafter
from model.drafting.parallel import Architecture, ParallelDrafter, from_target, spread_aux_layers
from model.drafting.speech_draft import SpeechArchitecture
from model.drafting.speech_draft import from_target as speech_from_target
from model.whisper.network import Whisper
from tests.support.tiny import CHECKPOINT


def tiny_drafter(
    vocabulary: tuple[int, ...] | None = None,
    *,
    checkpoint: Checkpoint = CHECKPOINT,
    block: int = 8,
) -> TrainedDrafter:
    """Untrained, but begun from the target's own blocks, so that some proposals hold."""
    torch.manual_seed(3)
    architecture = Architecture(2, block, spread_aux_layers(2), vocabulary)
    network = from_target(whisper_of(checkpoint), architecture, blocks=(0, 1))
    return TrainedDrafter("tiny", network, (0.5,) * block)


def tiny_speech_draft(
    vocabulary: tuple[int, ...] | None = None,
    *,
    checkpoint: Checkpoint = CHECKPOINT,
    block: int = 8,
) -> TrainedDrafter:
    """The same, but autoregressive."""
    architecture = SpeechArchitecture(block, (0, 1), vocabulary)
    network = speech_from_target(whisper_of(checkpoint), architecture, block=1)
    return TrainedDrafter("tiny", network, (0.5,) * block)


def whisper_of(checkpoint: Checkpoint) -> Whisper:
    return Whisper.from_weights(
        checkpoint.config, checkpoint.weights, torch.device("cpu"), torch.float32
    )


def tiny_parallel(vocabulary: tuple[int, ...] | None = None) -> ParallelDrafter:
    torch.manual_seed(1)
    return from_target(
        whisper_of(CHECKPOINT), Architecture(2, 4, (0, 1), vocabulary), blocks=(0, 1)
    )


both_drafters = pytest.mark.parametrize(
    "drafter", [tiny_drafter, tiny_speech_draft], ids=["parallel", "speech"]
)
