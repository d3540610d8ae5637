import json
from pathlib import Path

from model.training.curves import draw

POINTS = [
    {"step": 0, "tau": 1.0, "alpha": 0.0},
    {"step": 10, "tau": 1.5, "alpha": 0.1, "loss": 4.0},
    {"step": 20, "tau": 1.9, "alpha": 0.2, "loss": 3.0},
]


def test_a_run_becomes_a_picture(tmp_path: Path) -> None:
    """The same figures make the same file; the start, which has no loss, is in it."""
    (tmp_path / "curve.json").write_text(json.dumps(POINTS))
    draw(tmp_path / "curve.json", tmp_path / "curve.svg")
    first = (tmp_path / "curve.svg").read_text()
    assert first.count("<svg") == 1
    draw(tmp_path / "curve.json", tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text() == first
    for begun in (2, 1):
        (tmp_path / "curve.json").write_text(json.dumps(POINTS[:begun]))
        draw(tmp_path / "curve.json", tmp_path / "curve.svg")
        assert (tmp_path / "curve.svg").read_text() != first
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["curve.json", "curve.svg"]
