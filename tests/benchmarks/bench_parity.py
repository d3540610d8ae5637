"""Token ids of the engine against transformers' own greedy `generate`, file by file.

    python -m tests.benchmarks.bench_parity base tiny.en

Both get the same recordings (English, test, up to 30 s), the same prompt tokens without timestamps and the
same maximum of new tokens. docs/parity.json lists every difference with both texts and with the gap between
the two best logits at the first token that differs.
"""

import json
import sys
from pathlib import Path
from typing import Any

from model.checkpoints.load import Checkpoint, load
from model.checkpoints.reference import as_transformers
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from tests.support.audio import english
from tests.support.transformers_greedy import greedy_reference

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "parity.json"


def compare(checkpoint: Checkpoint) -> dict[str, Any]:
    """Decode every file with both, and list the differences."""
    engine = Engine(checkpoint, slots=1)
    reference = as_transformers(checkpoint)
    files = english()
    tokens = 0
    differences: list[dict[str, Any]] = []
    for count, one in enumerate(files, 1):
        audio = one.audio()[: 30 * 16_000]
        (ours,) = transcribe(engine, [Request(audio, language="en")])
        theirs, scores = greedy_reference(checkpoint, reference, audio)
        tokens += len(theirs)
        if theirs != ours.tokens:
            pairs = zip(theirs, ours.tokens, strict=False)
            first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
            best = None if first is None else scores[first][0].topk(2).values.tolist()
            differences.append(
                {
                    "file": one.name,
                    "at": first,
                    "gap": best and best[0] - best[1],
                    "transformers": checkpoint.tokens.decode(theirs),
                    "captiond": checkpoint.tokens.decode(ours.tokens),
                    "lengths": [len(theirs), len(ours.tokens)],
                }
            )
        print(f"{count}/{len(files)} {one.name} {len(differences)} differ", flush=True)
    return {
        "files": len(files),
        "equal": len(files) - len(differences),
        "tokens": tokens,
        "differences": differences,
    }


def main() -> None:
    """Compare the models named on the command line; the results of others stay."""
    for name in sys.argv[1:] or ["base", "tiny.en"]:
        found = compare(load(name))
        results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        RESULTS.write_text(json.dumps(results | {name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
