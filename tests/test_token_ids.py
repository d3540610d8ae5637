"""Token ids of base on LibriSpeech test-other, the same from one version of captiond to the next."""

import csv
import hashlib
from pathlib import Path

import pytest

from model.checkpoints.load import load
from model.drafting.drafter_files import bundled, load_drafter
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.whisper.quantised import Precision, missing_instructions
from tests.support.audio import needs_audio, recordings

KNOWN = Path(__file__).parent / "support" / "token_ids.tsv"  # SHA-256 of each file's ids, cut short

pytestmark = [
    pytest.mark.real,
    pytest.mark.usefixtures("every_core"),
    pytest.mark.timeout(1800),
    needs_audio,
]


def digest(tokens: tuple[int, ...]) -> str:
    """What the table has for a transcript: of its ids in decimal with spaces between."""
    return hashlib.sha256(" ".join(map(str, tokens)).encode()).hexdigest()[:12]


@pytest.mark.parametrize("drafts", [False, True], ids=["plain", "drafted"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_token_ids_are_those_that_are_known(precision: Precision, drafts: bool) -> None:
    if precision == "int8" and missing_instructions():
        pytest.skip(f"int8 needs a CPU with {' and '.join(missing_instructions())}")
    with KNOWN.open(encoding="utf-8", newline="") as file:
        known = {row["path"]: row[precision] for row in csv.DictReader(file, delimiter="\t")}
    checkpoint = load("base")
    drafter = bundled(checkpoint) if drafts else None
    engine = Engine(
        checkpoint,
        slots=4,
        drafter=None if drafter is None else load_drafter(drafter, checkpoint),
        precision=precision,
    )
    files = [one for one in recordings() if one.name in known]
    assert len(files) == len(known)
    outputs = transcribe(engine, [Request(one.audio(), language="en") for one in files])
    differ = [
        one.name
        for one, output in zip(files, outputs, strict=True)
        if digest(output.tokens) != known[one.name]
    ]
    assert not differ
