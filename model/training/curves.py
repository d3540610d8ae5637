"""A training run as a picture: loss and tokens a round, by step."""

import json
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from model.training.data.files import replacing


def draw(curve: Path, picture: Path) -> None:
    """Draw what `Trainer` wrote to curve.json as SVG. Raises OSError."""
    points = json.loads(curve.read_text(encoding="utf-8"))
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2)
    names = {"loss": "mean loss since the last point", "tau": "τ on held-out speakers"}
    for panel, (name, title) in zip(panels, names.items(), strict=True):
        known = [(point["step"], point[name]) for point in points if name in point]
        panel.plot(*zip(*known, strict=True) if known else ([], []), marker=".")
        panel.set(title=title, xlabel="step", ylabel=name)
    with replacing(picture) as temporary, mpl.rc_context({"svg.hashsalt": "captiond"}):
        # The same figures make the same file.
        figure.savefig(temporary, format="svg", metadata={"Date": None})
