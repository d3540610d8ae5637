from dataclasses import replace

import pytest

from model.drafting.parallel import Architecture
from model.drafting.speech_draft import SpeechArchitecture
from model.training.recipe import Recipe
from model.training.speech_student import SpeechStudent
from model.training.student import ParallelStudent, Student
from model.training.students import student_of, untrained_student
from tests.support.lessons import RECIPE
from tests.support.tiny import CHECKPOINT

SPEECH = replace(RECIPE, kind="speech", layers=(1,))
IDS = (3, 5, 9)


@pytest.mark.parametrize(
    ("recipe", "kind", "architecture"),
    [
        (
            replace(RECIPE, rope=False, audio=False),
            ParallelStudent,
            Architecture(2, 4, (0, 1), IDS, rope=False, audio=False),
        ),
        (SPEECH, SpeechStudent, SpeechArchitecture(4, (0, 1), IDS)),
    ],
    ids=["parallel", "speech"],
)
def test_a_recipe_says_who_learns(
    recipe: Recipe, kind: type[Student], architecture: Architecture | SpeechArchitecture
) -> None:
    """Its kind, and every choice that the network is built by; all of it is to be trained."""
    student = untrained_student(recipe, CHECKPOINT, IDS)
    assert type(student) is kind
    assert student.network.architecture == architecture
    assert all(parameter.requires_grad for parameter in student.parameters())
    assert type(student_of(student.network, CHECKPOINT)) is kind
