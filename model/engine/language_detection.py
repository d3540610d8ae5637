"""Language detection: the likeliest of the languages asked for, or the hint where that is not sure."""

from collections.abc import Collection

from torch import Tensor

from model.engine.requests import Request, as_tuple
from model.engine.sequence import Sequence


def given_language(request: Request, known: Collection[str]) -> str | None:
    """The only language, of those `known`, that the request allows; None where there are several."""
    among = as_tuple(request.language) or tuple(known)
    return among[0] if len(among) == 1 else None


def detected_language(request: Request, logits: Tensor, known: list[str]) -> tuple[str, float]:
    """The language and its probability among those asked for.

    logits: [languages], of the codes `known`. The request's hint is taken where no language is likelier
    than its `hint_below`.
    """
    among = as_tuple(request.language) or tuple(known)
    probabilities = logits[[known.index(code) for code in among]].softmax(-1)
    best = int(probabilities.argmax())
    if request.language_hint in among and probabilities[best] < request.hint_below:
        best = among.index(request.language_hint)
    return among[best], float(probabilities[best])


def set_languages(sequences: list[Sequence], logits: Tensor, known: list[str]) -> None:
    """Set the language of the sequences that have none. logits: [sequences, languages]."""
    for sequence, scores in zip(sequences, logits, strict=True):
        if sequence.language is None:
            sequence.language, sequence.language_probability = detected_language(
                sequence.request, scores, known
            )
