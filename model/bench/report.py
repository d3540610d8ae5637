"""Results as files: JSON with everything, Markdown tables in the papers' form, a plot as SVG.

The JSON is the source of the others; it collects runs of several models and sections, each with its machine.
"""

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure

from model.bench.clips import BenchError

Figures = Mapping[str, Any]

DEFINITIONS = {
    "time": "wall time of one unit (as many clips as the batch size) from waveforms in memory to text; "
    "the median of the repeats. Engines take turns, and every repeat starts with another one",
    "audio s/s": "seconds of audio in one second",
    "tok/s": "text tokens in one second: those of the engine's own transcript, special tokens not "
    "counted",
    "S_G": "greedy decoding's time divided by the engine's, same run and batch size; in brackets the "
    "95 % interval of 2,000 paired bootstrap resamples over units",
    "decoder S_G": "the same, encoder aside: log-mel, encoder and the target's cross-attention keys "
    "and values, which take their turn alone on each unit, are subtracted from both",
    "α": "share of proposed tokens that were accepted",
    "τ": "tokens emitted for each target pass after the prefill, the prefill and the first token not "
    "counted",
    "passes": "target passes for each clip after the prefill",
    "differ": "clips whose token ids (captiond) or normalised texts (others) are not those of captiond's "
    "greedy decoding",
    "WER": "after Whisper's English text normaliser, all clips with a transcript together",
    "oracle": "a simulated drafter that knows the greedy tokens; each proposed token is right with the "
    "stated chance, and proposing takes no time. After a block without an accepted token the engine may "
    "make plain passes",
    "again": "captiond drafting with its own transcript of the same clip",
    "int8": "captiond's int8 target: greedy, with an oracle of its own greedy tokens, with the drafter. "
    "It is another target: its clips may differ from greedy decoding in float32",
}
_PACKAGES = ("torch", "transformers", "faster-whisper", "ctranslate2")


def machine(device: str) -> dict[str, Any]:
    """The machine and the packages that figures depend on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    cpu = next((line.partition(":")[2] for line in lines if line.startswith("model name")), "")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "cpu": cpu.strip() or platform.machine(),
        "logical_cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def write(output: Path, model: str, section: str, figures: Figures, device: str) -> list[Path]:
    """Add one section's figures of one model to OUTPUT.json, and write the other files from it.

    Returns the files written. Raises BenchError for an OUTPUT.json that is not a benchmark's.
    """
    paths = [output.with_suffix(suffix) for suffix in (".json", ".md", ".svg")]
    results = read(paths[0])
    results["definitions"] = DEFINITIONS
    results["models"].setdefault(model, {})[section] = {"machine": machine(device), **figures}
    output.parent.mkdir(parents=True, exist_ok=True)
    paths[0].write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    paths[1].write_text(tables(results), encoding="utf-8")
    if not any("engines" in sections for sections in results["models"].values()):
        return paths[:2]
    plot(results, paths[2])
    return paths


def read(path: Path) -> dict[str, Any]:
    """The results so far; none without a file. Raises BenchError."""
    if not path.exists():
        return {"models": {}}
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        results = None
    if not isinstance(results, dict) or not isinstance(results.get("models"), dict):
        raise BenchError(
            f"{path} holds something else than benchmark results: name another --output"
        )
    return results


def plot(results: Figures, path: Path) -> None:
    """Throughput by batch size, a panel for each model with the section `engines`."""
    models = {m: s["engines"]["batches"] for m, s in results["models"].items() if "engines" in s}
    figure = Figure(figsize=(7.0 * len(models), 4), layout="constrained")
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for panel, (model, batches) in zip(panels, models.items(), strict=True):
        lines: dict[str, list[tuple[int, float]]] = {}
        for batch, found in batches.items():
            for row in found["rows"]:
                if "absent" not in row:
                    point = (int(batch), row["audio_s_per_s"])
                    lines.setdefault(row["engine"], []).append(point)
        for engine, points in lines.items():
            panel.plot(*zip(*points, strict=True), marker="o", label=engine)
        panel.set(title=model, xlabel="batch size", ylabel="audio s/s", ylim=(0, None))
        panel.set_xticks([int(batch) for batch in batches])
        panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    # Equal figures make equal files.
    with mpl.rc_context({"svg.hashsalt": "captiond"}):
        figure.savefig(path, metadata={"Date": None})


def tables(results: Figures) -> str:
    """The results as Markdown."""
    parts = [
        "# Benchmarks",
        "Written by `captiond bench`; the figures in full are in the JSON beside.",
    ]
    for model, sections in results["models"].items():
        for name, figures in sections.items():
            parts += [f"## {model}: {name}", _conditions(figures), *_TABLES[name](figures)]
    parts.append("## Definitions")
    parts.append("\n".join(f"* **{term}**: {text}." for term, text in DEFINITIONS.items()))
    return "\n\n".join(parts) + "\n"


def _conditions(figures: Figures) -> str:
    host = figures["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in host["packages"].items())
    text = (
        f"{host['date']}; {host['device']}, {host['cpu']}, {host['logical_cpus']} logical CPUs, "
        f"{host['threads']} threads; {packages}; warm-ups: {figures['warm_ups']}; medians of "
        f"repeats: {figures['repeats']}."
    )
    if "clips" in figures:
        oracle = figures["oracle"]
        text += (
            f" {figures['clips']} clips, {figures['audio_s']} s of audio. The oracle's blocks have "
            f"{oracle['block']} tokens, each right with chance {oracle['chance_of_each_token']}."
        )
        if figures.get("drafter") is not None:
            text += f" Trained drafter: {figures['drafter']}."
    return text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _numbers(values: Iterable[float | None]) -> list[str]:
    return [_number(value) for value in values]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def _gain(value: Figures | None) -> str:
    if value is None:
        return ""
    if value["interval"] is None:
        return _number(value["ratio"])
    return "{:.2f} [{:.2f}, {:.2f}]".format(value["ratio"], *value["interval"])


_COLUMNS = ("audio s/s", "tok/s", "S_G", "decoder S_G", "α (%)", "τ", "passes", "differ", "WER (%)")


def _cells(row: Figures) -> list[str]:
    differ = row.get("token_mismatches", row.get("text_mismatches"))
    return [
        _number(row["audio_s_per_s"]),
        _number(row["tokens_per_s"], 1),
        _gain(row["gain"]),
        _gain(row.get("decoder_gain")),
        _percent(row.get("alpha")),
        _number(row.get("tau")),
        _number(row.get("passes"), 1),
        str(differ),
        _number(row["words"]["wer_percent"]) if "words" in row else "",
    ]


def _engines(figures: Figures) -> list[str]:
    parts = []
    for batch, found in figures["batches"].items():
        ran = [row for row in found["rows"] if "absent" not in row]
        parts.append(f"Batch size {batch}:")
        parts.append(_table(("engine", *_COLUMNS), ([row["engine"], *_cells(row)] for row in ran)))
        absent = [row for row in found["rows"] if "absent" in row]
        if absent:
            parts.append(
                "\n".join(f"* {row['engine']}: not run; {row['absent']}" for row in absent)
            )
    return parts


def _blocks(figures: Figures) -> list[str]:
    return [_table(("K", *_COLUMNS), ([str(row["k"]), *_cells(row)] for row in figures["rows"]))]


def _temperature(figures: Figures) -> list[str]:
    head = ("T", "audio s/s, K = 0", "audio s/s", "tok/s", "gain", "α (%)", "τ")
    rows = (
        [
            str(row["temperature"]),
            _number(row["plain"]["audio_s_per_s"]),
            _number(row["drafted"]["audio_s_per_s"]),
            _number(row["drafted"]["tokens_per_s"], 1),
            _gain(row["gain"]),
            _percent(row["alpha"]),
            _number(row["tau"]),
        ]
        for row in figures["rows"]
    )
    return [_table(head, rows)]


def _share(figures: Figures) -> list[str]:
    fast = figures["drafted_by"]
    head = ("length (s)", "clips", "encoder (s)", "of greedy (%)", f"of {fast} (%)", "S_G")
    rows = (
        [
            f"{row['shortest_s']:.1f} … {row['longest_s']:.1f}",
            str(row["clips"]),
            _number(row["encode_s"], 3),
            _percent(row["greedy"]),
            _percent(row[fast]),
            _gain(row["gain"]),
        ]
        for row in figures["rows"]
    )
    return [_table(head, rows)]


def _passes(figures: Figures) -> list[str]:
    encode, target, head, draft = (
        figures[f"{n}_ms"] for n in ("encode", "target", "head", "draft")
    )
    parts = ("mel", "encoder", "cross")
    before = ([_number(row["window_s"], 0), *_numbers(row[p] for p in parts)] for row in encode)
    passes = (
        [str(row["rows"]), *_numbers([*row["tokens"].values(), row["nine_to_one"]])]
        for row in target
    )
    drafts = ([str(row["vocabulary"]), *_numbers(row["rows"].values())] for row in draft)
    return [
        "Before the first token, one clip, ms:",
        _table(("window (s)", "log-mel", "encoder", "cross-attention set-up"), before),
        "Target passes, ms, by rows and by new tokens in each:",
        _table(("rows", *target[0]["tokens"], "9 to 1"), passes),
        "Of these the output head, one row, ms, by new tokens:",
        _table(tuple(head), [_numbers(head.values())]),
        "Draft passes (two layers, eight candidates, untrained), ms, by rows:",
        _table(("vocabulary", *draft[0]["rows"]), drafts),
    ]


_TABLES: dict[str, Callable[[Figures], list[str]]] = {
    "engines": _engines,
    "passes": _passes,
    "blocks": _blocks,
    "temperature": _temperature,
    "share": _share,
}
