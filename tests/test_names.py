"""One word, one meaning: the words that the code gave up for the field's stay given up."""

import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What each word became is in docs/design.md.
EVERYWHERE = {
    "Seat", "Seats", "seat", "seats", "stranger", "crowded", "doors", "asking", "Farewell", "farewell",
    "History", "Tape", "tape", "Backlog", "backlog", "Courtesy", "courtesy", "Lateness", "lateness",
    "believed", "complaints", "Row", "Verdict", "verdict", "repair", "Reuse", "DraftMemory",
    "draft_memory", "hasten", "Pace", "taps", "tapped", "Shelf", "shelf", "Variation", "variation",
    "appraise", "Desk", "desk", "Apart", "rival", "rivals", "race", "guarded",
}  # fmt: skip
IN_MODEL = {
    "heard", "hear", "spoken", "reach", "opening", "budget", "previous", "expected", "settled", "Field",
    "Facts", "Reading", "pace",
}  # fmt: skip
FILES = [
    path
    for folder in ("clients", "daemon", "model", "streaming", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != Path(__file__).resolve()
]


def names(path: Path) -> set[str]:
    """Every identifier in a file; words in its texts and comments are no names."""
    with io.BytesIO(path.read_bytes()) as file:
        return {one.string for one in tokenize.tokenize(file.readline) if one.type == tokenize.NAME}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_words_given_up_stay_given_up(path: Path) -> None:
    forbidden = EVERYWHERE
    if path.relative_to(ROOT).parts[0] == "model":
        forbidden = EVERYWHERE | IN_MODEL
    assert not names(path) & forbidden, "docs/design.md says what to call these"
