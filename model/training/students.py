"""From a recipe or a trained network to a student: the one place of training that knows the kinds."""

from typing import assert_never

import torch

from model.checkpoints.load import Checkpoint
from model.drafting.drafter_files import Network
from model.drafting.parallel import Architecture, ParallelDrafter, from_target
from model.drafting.speech_draft import SpeechArchitecture, SpeechDraft
from model.drafting.speech_draft import from_target as speech_from_target
from model.training.recipe import Recipe
from model.training.speech_student import SpeechStudent
from model.training.student import ParallelStudent, Student
from model.whisper.network import Whisper


def student_of(network: Network, checkpoint: Checkpoint, *, soft: float = 0.0) -> Student:
    """The student of `network`. soft: see `Student`."""
    match network:
        case ParallelDrafter():
            return ParallelStudent(network, checkpoint, soft=soft)
        case SpeechDraft():
            return SpeechStudent(network, checkpoint, soft=soft)
        case _:
            assert_never(network)


def untrained_student(
    recipe: Recipe, checkpoint: Checkpoint, vocabulary: tuple[int, ...] | None
) -> Student:
    """An untrained student. vocabulary: ids that it may propose; None for all."""
    whisper = Whisper.from_weights(
        checkpoint.config, checkpoint.weights, torch.device("cpu"), torch.float32
    )
    network: Network
    match recipe.kind:
        case "parallel":
            architecture = Architecture(
                layers=len(recipe.layers),
                block=recipe.block,
                aux_layers=recipe.aux_layers,
                vocabulary=vocabulary,
                rope=recipe.rope,
                history=recipe.history,
                audio=recipe.audio,
            )
            network = from_target(whisper, architecture, recipe.layers)
        case "speech":
            shape = SpeechArchitecture(recipe.block, recipe.aux_layers, vocabulary)
            network = speech_from_target(whisper, shape, recipe.layers[0])
        case _:
            assert_never(recipe.kind)
    return student_of(network.requires_grad_(), checkpoint, soft=recipe.soft)
