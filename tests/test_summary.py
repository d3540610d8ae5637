import json
from pathlib import Path

from model.drafting.drafter_files import read_metadata, save_network
from model.training import summary
from model.training.data.cache import Entry
from model.training.score import Score
from tests.support.tiny_drafters import tiny_parallel, tiny_speech_draft


def entry(source: str, licence: str, seconds: float, speaker: str = "s") -> Entry:
    return Entry(Path(), 0, speaker, source, licence, seconds, 9, 4)


ENTRIES = [
    entry("read", "CC BY 4.0", 1800.0),
    entry("made", "CC0", 360.0, "t"),
    entry("read", "CC BY 4.0", 1800.0),
]
ACCEPTED = (4,) * 10 + (3,) * 10 + (2,) * 20 + (1,) * 40 + (0,) * 20
SCORE = Score((4,) * 100, ACCEPTED, tuple(count + 1 for count in ACCEPTED))


def test_hours_are_summed_by_source_and_licence() -> None:
    assert summary.shares(ENTRIES) == [
        summary.Share("made", "CC0", 0.1, 1),
        summary.Share("read", "CC BY 4.0", 1.0, 2),
    ]


def test_notes_are_text_that_says_everything() -> None:
    """Whatever opens safetensors can show them."""
    notes = summary.data_notes(ENTRIES, {"unreadable": 2}) | summary.score_notes(SCORE, ENTRIES)
    assert all(isinstance(text, str) for text in notes.values())
    assert json.loads(notes["data"])[1] == {
        "source": "read",
        "licence": "CC BY 4.0",
        "hours": 1.0,
        "passages": 2,
    }
    assert notes["data_licences"] == "CC BY 4.0; CC0"
    assert json.loads(notes["excluded"]) == {"unreadable": 2}
    assert (notes["alpha"], notes["tau"]) == ("0.3750", "2.5000")
    measured = json.loads(notes["measured_on"])
    assert measured["speakers"] == 2
    assert (measured["rounds"], measured["tokens"]) == (100, 250)


def test_a_file_is_described_by_what_it_notes(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    notes = {
        "model": "tiny",
        "recipe": json.dumps({"layers": [0, 1]}),
        "step": "40",
        "command": "captiond train --out x",
    }
    notes |= summary.data_notes(ENTRIES, {"unreadable": 2, "longer than 30 s": 1})
    notes |= summary.score_notes(SCORE, ENTRIES)
    save_network(
        path, tiny_parallel((1, 5)), target="abc", acceptance=SCORE.acceptance(4), notes=notes
    )
    text = summary.describe_file(path, read_metadata(path))
    for part in (
        "tiny, fingerprint abc",
        "parallel, 2 layers from blocks 0, 1, 4 candidates, aux layers 0, 1, rotary positions, memories: history",
        "2 tokens",
        "0.800 0.500 0.500 0.500",
        "0.3750, 2.5000: 3 held-out passages (1.10 h) of 2 speakers, 100 rounds",
        "40 steps",
        "read: 1.00 h, 2 passages (CC BY 4.0)",
        "made: 0.10 h, 1 passages (CC0)",
        "1 longer than 30 s, 2 unreadable",
        "CC BY 4.0; CC0",
        "captiond train --out x",
    ):
        assert part in text, f"{part!r} is not in\n{text}"


def test_a_file_without_notes_is_described_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    save_network(path, tiny_parallel(), target="abc", acceptance=[0.5] * 4)
    text = summary.describe_file(path, read_metadata(path))
    assert "not named, fingerprint abc" in text
    assert "the target's" in text
    assert "τ" not in text


def test_a_speech_draft_is_described_as_one(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    drafter = tiny_speech_draft(block=4)
    save_network(path, drafter.network, target="abc", acceptance=drafter.acceptance)
    text = summary.describe_file(path, read_metadata(path))
    assert "Speech-Draft, one layer, 4 candidates, aux layers 0, 1\n" in text


def test_a_score_is_described() -> None:
    text = summary.describe_score(SCORE, 4)
    assert "0.3750" in text
    assert "100, 250 tokens" in text
