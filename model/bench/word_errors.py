"""Word errors of transcripts, after Whisper's normaliser; needs the packages of the extra `bench`."""

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jiwer
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer


@cache
def _normalizer() -> EnglishTextNormalizer:
    # transformers has Whisper's rules without the list of spellings, which the checkpoints on the Hub
    # have; the package whisper-normalizer carries the same list.
    spellings = files("whisper_normalizer") / "normalizers" / "english.json"
    return EnglishTextNormalizer(json.loads(spellings.read_text(encoding="utf-8")))


def normalised(text: str) -> str:
    """Text after Whisper's English normaliser: case, punctuation, numbers, spellings."""
    return str(_normalizer()(text))


def word_errors(references: Sequence[str], hypotheses: Sequence[str]) -> dict[str, Any]:
    """Errors over all texts, each pair aligned by itself after normalisation."""
    out = jiwer.process_words(
        [normalised(text) for text in references], [normalised(text) for text in hypotheses]
    )
    return {
        "wer_percent": round(100 * out.wer, 2),
        "reference_words": out.hits + out.substitutions + out.deletions,
        "errors": out.substitutions + out.deletions + out.insertions,
        "substitutions": out.substitutions,
        "deletions": out.deletions,
        "insertions": out.insertions,
    }
