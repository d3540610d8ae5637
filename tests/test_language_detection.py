from dataclasses import replace

import pytest
import torch

from model.engine.engine import Engine
from model.engine.language_detection import detected_language
from model.engine.offline import transcribe
from model.engine.requests import HINT_BELOW, Request
from tests.support.references import alone
from tests.support.tiny import CHECKPOINT, changed
from tests.support.utterances import noise

KNOWN = ["en", "de", "es"]


@pytest.mark.parametrize(
    ("language", "hint", "found", "probability"),
    [
        (None, None, "de", 0.45),
        (("en", "es"), None, "en", 0.55),
        (None, "en", "en", 0.3),
        (("de", "es"), "es", "de", 0.64),
        (("de", "es"), "en", "de", 0.64),
    ],
)
def test_the_likeliest_of_those_asked_for_is_taken(
    language: tuple[str, ...] | None, hint: str | None, found: str, probability: float
) -> None:
    """The hint instead where none is sure and it is among them."""
    logits = torch.tensor([0.3, 0.45, 0.25]).log()
    request = Request(noise(1), language=language, language_hint=hint)
    code, likely = detected_language(request, logits, KNOWN)
    assert code == found
    assert likely == pytest.approx(probability, abs=0.01)


def test_a_language_is_detected_among_those_given() -> None:
    """Given: no probability; detected: the likeliest of the set, which is renormalised."""
    audio = noise(3)
    given_one = alone(Request(audio, language="de"))
    assert (given_one.language, given_one.language_probability) == ("de", None)
    every = alone(Request(audio))
    assert every.language_probability is not None
    others = tuple(sorted({"en", "de", "es"} - {every.language}))
    pair = alone(Request(audio, language=others))
    assert pair.language in others
    assert pair.language_probability is not None
    assert pair.language_probability >= 0.5


def test_the_hint_is_taken_where_none_is_sure() -> None:
    """Where one is, detection has its way; a language outside the set asked for is none to expect."""
    rows = list(CHECKPOINT.tokens.languages.values())
    alike = changed(
        CHECKPOINT.weights,
        "decoder.embedding.weight",
        lambda table: table.index_copy(0, torch.tensor(rows), table[rows[:1]].expand(3, -1)),
    )
    torn = transcribe(
        Engine(replace(CHECKPOINT, weights=alike), slots=3),
        [
            Request(noise(1), language=among, language_hint="de")
            for among in (None, ("es", "en", "de"), ("es", "en"))
        ],
    )
    assert [one.language for one in torn] == ["de", "de", "es"]
    free = alone(Request(noise(1)))
    assert free.language_probability is not None
    assert free.language_probability >= HINT_BELOW
    assert free.language != "de"
    assert alone(Request(noise(1), language_hint="de")).language == free.language
