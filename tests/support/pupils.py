"""Students of the tiny target, and trajectories that were made up for them."""

import torch

from model.drafting.parallel import Architecture, from_target
from model.drafting.speech_draft import SpeechDraft
from model.training.data.packing import IGNORED, Batch, lookup_of, pack
from model.training.data.teacher import Trajectory
from model.training.speech_student import SpeechStudent
from model.training.student import ParallelStudent, Student
from tests.support.lessons import AUX_LAYERS
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import tiny_speech_draft, whisper_of

WIDTH = int(CHECKPOINT.config.d_model)
SIZE = int(CHECKPOINT.config.vocab_size)
EVERY = lookup_of(None, SIZE)


def trajectory(length: int, states: int = 50, seed: int = 0) -> Trajectory:
    """Four prompt tokens, then made-up ones, of which the last is the end of transcript."""
    source = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, 200, (length,), generator=source)
    tokens[-1] = CHECKPOINT.tokens.eot
    return Trajectory(
        tokens=tokens,
        prompt_len=4,
        states=torch.randn(states, WIDTH, generator=source).half(),
        features=torch.randn(length - 1, 2 * WIDTH, generator=source).half(),
        finished=True,
    )


def lesson_of(
    taught: list[Trajectory], anchors: list[list[int]], block: int = 4, lookup: torch.Tensor = EVERY
) -> Batch:
    return pack(taught, anchors, kept=AUX_LAYERS, wanted=AUX_LAYERS, block=block, lookup=lookup)


@torch.no_grad()
def packed(pupil: Student, one: Trajectory, anchors: list[int]) -> torch.Tensor:
    """Logits [anchors, block, vocabulary]."""
    return pupil.logits(lesson_of([one], [anchors]))[0]


def parallel_student(
    vocabulary: tuple[int, ...] | None = None, soft: float = 0.0
) -> ParallelStudent:
    torch.manual_seed(0)
    architecture = Architecture(2, 4, AUX_LAYERS, vocabulary)
    network = from_target(whisper_of(CHECKPOINT), architecture, (0, 1))
    return ParallelStudent(network, CHECKPOINT, soft=soft)


def batch(vocabulary: tuple[int, ...] | None = None) -> Batch:
    taught = [trajectory(12), trajectory(9, seed=1)]
    return lesson_of(taught, [[4, 9], [5]], lookup=lookup_of(vocabulary, SIZE))


@torch.no_grad()
def loss_by_hand(pupil: Student, lesson: Batch, weights: list[float]) -> float:
    """The weighted mean over all labels that count, one by one."""
    logits = pupil.logits(lesson).double()
    above = below = 0.0
    for *place, position in torch.cartesian_prod(*map(torch.arange, lesson.labels.shape)).tolist():
        label = int(lesson.labels[*place, position])
        if label != IGNORED:
            above -= weights[position] * float(logits[*place, position].log_softmax(-1)[label])
            below += weights[position]
    return above / below


def speech_student(vocabulary: tuple[int, ...] | None = None, soft: float = 0.0) -> SpeechStudent:
    network = tiny_speech_draft(vocabulary, block=4).network.requires_grad_()
    assert isinstance(network, SpeechDraft)
    return SpeechStudent(network, CHECKPOINT, soft=soft)
