"""Word errors of the int8 target: its greedy transcripts beside float32's, file by file.

    python -m tests.benchmarks.bench_int8 [--model base] [--under librispeech_testother] [--files N]

Both targets decode the English test recordings of up to 30 s that have a transcript. docs/int8.json keeps
every text, so that a run continues the last one. Its summary has the word errors of both and the number of
files with different tokens, in total and by folder.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from model.bench.word_errors import word_errors
from model.checkpoints.load import load
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.whisper.mel import SAMPLE_RATE
from model.whisper.quantised import Precision
from tests.support.audio import Recording, english

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "int8.json"
PRECISIONS: tuple[Precision, ...] = ("float32", "int8")


def both(engines: dict[Precision, Engine], one: Recording) -> dict[str, Any]:
    """Both texts, whether their tokens are equal, and the reference transcript."""
    request = Request(one.audio()[: 30 * SAMPLE_RATE], language="en")
    hypotheses = {name: transcribe(engine, [request])[0] for name, engine in engines.items()}
    return {
        "transcript": one.transcript,
        **{name: hypothesis.text for name, hypothesis in hypotheses.items()},
        "same_tokens": len({hypothesis.tokens for hypothesis in hypotheses.values()}) == 1,
    }


def summary(files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Word errors of both targets, over all files and by folder."""
    folders = {"all": list(files.values())}
    for name, found in files.items():
        folders.setdefault(name.partition("/")[0], []).append(found)
    return {
        folder: {
            "files": len(rows),
            "files_with_other_tokens": sum(not row["same_tokens"] for row in rows),
            **{
                precision: word_errors(
                    [row["transcript"] for row in rows], [row[precision] for row in rows]
                )
                for precision in PRECISIONS
            },
        }
        for folder, rows in folders.items()
    }


def main() -> None:
    """Decode the recordings that are not in the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="base")
    parser.add_argument("--under", default="", help="only recordings below this path")
    parser.add_argument("--files", type=int, help="at most so many in this run")
    args = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    files = results.setdefault(args.model, {}).setdefault("files", {})
    wanted = [
        one for one in english(args.under) if one.transcript.strip() and one.name not in files
    ][: args.files]
    checkpoint = load(args.model)
    engines = {name: Engine(checkpoint, slots=1, precision=name) for name in PRECISIONS}
    for number, one in enumerate(wanted, 1):
        files[one.name] = both(engines, one)
        results[args.model]["summary"] = summary(files)
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        print(f"{number}/{len(wanted)}", one.name, files[one.name]["same_tokens"], flush=True)


if __name__ == "__main__":
    main()
