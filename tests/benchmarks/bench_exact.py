"""Exactness with genuine weights: does speculation change a token, or a distribution?

    python -m tests.benchmarks.bench_exact [tokens] [sampling] [bundled] [--model base] [--precision int8] [--files N]

tokens: every proposer, block and batch size, in random order of arrival, against plain decoding of
the same recordings one at a time; counts mismatching tokens. sampling: the first three tokens of one
utterance, drawn speculatively from a drafter's distribution and drawn plainly, compared by a
chi-square test. bundled: the installed drafter, on LibriSpeech test-other and on a selection of the other
recordings, eight at a time, against plain decoding; the prefill is a pass, but no round. Each section
replaces its part of docs/exactness.json.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.checkpoints.load import load
from model.drafting.drafter_files import TrainedDrafter, bundled, load_drafter
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.rejection_sampler import DRAFT, accept, sample, uniform, warm_softmax
from model.engine.requests import Request
from model.engine.sequence import Sequence
from model.whisper.quantised import Precision
from tests.support.audio import Recording, english, recordings
from tests.support.oracles import chi_square, proposers, run_shuffled

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "exactness.json"
BLOCKS = (1, 2, 4, 8)
SLOTS = (1, 2, 4, 8, 16)
DRAWS = 2_000
FIRST = 3  # tokens of each draw


def spread(chosen: list[Recording], files: int) -> list[Recording]:
    """So many, from the whole list."""
    return chosen[:: max(len(chosen) // files, 1)][:files]


def requests_of(chosen: list[Recording]) -> list[Request]:
    return [Request(one.audio()[: 30 * 16_000], language="en") for one in chosen]


def tokens(model: str, precision: Precision, files: int) -> dict[str, Any]:
    """Mismatching tokens over all combinations."""
    checkpoint = load(model)
    requests = requests_of(spread(english(), files))
    alone = Engine(checkpoint, slots=1, proposer=lambda _: None, precision=precision)
    plain = {one.request: one.tokens for one in transcribe(alone, requests)}
    each = proposers(plain.__getitem__, requests, checkpoint.tokens.eot)
    del each["perfect"]  # the oracle, but easier
    compared = mismatches = utterances = 0
    for slots in SLOTS:
        engine = Engine(checkpoint, slots=slots, precision=precision)
        for name, proposer in each.items():
            for block in BLOCKS if name != "none" else (0,):
                engine.runner.block, engine.planner.proposer = block, proposer
                for one in run_shuffled(engine, requests, random.Random(f"{name} {block} {slots}")):
                    wanted = plain[one.request]
                    utterances += 1
                    compared += len(wanted)
                    mismatches += sum(
                        a != b for a, b in zip(one.tokens, wanted, strict=False)
                    ) + abs(len(one.tokens) - len(wanted))
                print(name, block, slots, "mismatches so far:", mismatches, flush=True)
    return {
        "files": len(requests),
        "proposers": list(each),
        "blocks": [0, *BLOCKS],
        "slots": list(SLOTS),
        "utterances_compared": utterances,
        "tokens_compared": compared,
        "mismatching_tokens": mismatches,
    }


Law = Callable[[tuple[int, ...]], torch.Tensor]  # logits [vocabulary] of the token behind a prefix


@torch.inference_mode()
def target_law(model: str, precision: Precision, audio: NDArray[np.float32]) -> Law:
    """The target's, with the token rules applied, of one utterance."""
    runner = Engine(load(model), slots=1, precision=precision).runner
    runner.encode([Sequence(Request(audio), "en")], 0, runner.window)
    prompt = runner.tokens.prompt_tokens([], "en", "transcribe")
    none, states = torch.zeros(1, dtype=torch.int64), torch.tensor([runner.window])
    cached = runner.state.cache.rows(0, 1)

    @cache
    @torch.inference_mode()
    def law(prefix: tuple[int, ...]) -> torch.Tensor:
        text = torch.tensor([[*prompt, *prefix]])
        hidden, _ = runner.whisper.decoder(text, none, states, cached, 64, runner.window)
        bias = runner.tokens.bias(first=not prefix)
        logits: torch.Tensor = runner.whisper.decoder.logits(hidden[0, -1]) + bias
        return logits

    return law


def sampling(model: str, precision: Precision, _files: int) -> dict[str, Any]:
    """Chi-square p-values at two temperatures, for two drafters: a noisy target and a narrow one."""
    audio = recordings(under="ami_meetings")[1].audio()[: 6 * 16_000]
    target = target_law(model, precision, audio)
    drafters: dict[str, Law] = {
        "noisy": lambda prefix: noisy(target(prefix), hash(prefix) % 2**31),
        "narrow": lambda prefix: narrow(target(prefix)),
    }
    rows = []
    for temperature in (0.4, 1.0):
        plain, _ = draw(target, target, temperature, k=0, seeds=range(DRAWS))
        for name, drafter in drafters.items():
            drawn, alpha = draw(target, drafter, temperature, k=4, seeds=range(DRAWS, 2 * DRAWS))
            p, outcomes = chi_square(plain, drawn, least=10)
            row = {"temperature": temperature, "drafter": name, "draws": DRAWS}
            rows.append(row | {"outcomes": outcomes, "p_value": p, "accepted_share": alpha})
            print(rows[-1], flush=True)
    return {"tokens": FIRST, "rows": rows}


def draw(
    law: Law, drafter: Law, temperature: float, *, k: int, seeds: range
) -> tuple[Counter[tuple[int, ...]], float]:
    """How often each text of FIRST tokens comes, with k > 0 by the engine's rejection rule; share accepted."""
    results: Counter[tuple[int, ...]] = Counter()
    proposed = accepted = 0
    temperatures = torch.tensor([temperature])
    for seed in seeds:
        text: tuple[int, ...] = ()
        key = torch.tensor([seed])
        while len(text) < FIRST:
            context, distributions, block = text, [], []
            for slot in range(k):
                distribution = warm_softmax(drafter(context)[None, None], temperatures)[0, 0]
                numbers = uniform(key, torch.tensor([len(text) + slot]), DRAFT)
                token = int(sample(distribution[None], numbers))
                distributions.append(distribution)
                block.append(token)
                context = (*context, token)
            target = [law((*text, *block[:slot])) for slot in range(k + 1)]
            rejection = accept(
                torch.stack(target)[None],
                torch.tensor([block], dtype=torch.int64).view(1, k),
                torch.tensor([k]),
                temperatures,
                key,
                torch.tensor([len(text)]),
                eot=-1,
                sampled=True,
                draft=torch.stack(distributions)[None] if distributions else None,
                distributed=torch.tensor([k > 0]),
            )
            count = int(rejection.emitted[0])
            text = (*text, *rejection.tokens[0, :count].tolist())
            proposed += k
            accepted += int(rejection.accepted[0])
        results[text[:FIRST]] += 1
    return results, accepted / max(proposed, 1)


def noisy(logits: torch.Tensor, seed: int) -> torch.Tensor:
    return logits + torch.randn(len(logits), generator=torch.Generator().manual_seed(seed))


def narrow(logits: torch.Tensor) -> torch.Tensor:
    """Of the 20 best tokens alone."""
    best = logits.topk(20).indices
    return torch.full_like(logits, -torch.inf).index_copy(0, best, logits[best] * 0.7)


def bundled_networks(model: str, precision: Precision, files: int) -> dict[str, Any]:
    """Greedy decoding with and without the bundled drafter, on test-other and `files` others."""
    checkpoint = load(model)

    def engine(drafter: TrainedDrafter | None) -> Engine:
        return Engine(checkpoint, slots=8, drafter=drafter, precision=precision)

    engines = {"plain": engine(None)}
    if (file := bundled(checkpoint)) is not None:
        engines["drafter"] = engine(load_drafter(file, checkpoint))
    first = [one for one in english() if one.name.startswith("librispeech_testother")]
    others = [one for one in english() if one not in first]
    parts = {"test-other": first, "others": spread(others, files)}
    found: dict[str, Any] = {}
    for name, chosen in parts.items():
        requests = requests_of(chosen)
        wanted = transcribe(engines["plain"], requests)
        tokens = sum(len(one.tokens) for one in wanted)
        found[name] = {"files": len(requests), "tokens": tokens}
        for kind, one in engines.items():
            got = transcribe(one, requests) if kind != "plain" else wanted
            rounds, proposed = (sum(getattr(g, key) for g in got) for key in ("rounds", "proposed"))
            pairs = zip(wanted, got, strict=True)
            found[name][kind] = {
                "files_that_differ": sum(a.tokens != b.tokens for a, b in pairs),
                "rounds": rounds,
                "tokens_a_pass": round(tokens / (rounds + len(requests)), 3),
                "alpha": round(sum(g.accepted for g in got) / max(proposed, 1), 4),
            }
            if kind == "drafter":
                found[name][kind]["tau"] = round((tokens - len(requests)) / rounds, 3)
        print(name, found[name], flush=True)
    return found


SECTIONS = {"tokens": tokens, "sampling": sampling, "bundled": bundled_networks}


def main() -> None:
    """Run the sections named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=list(SECTIONS))
    parser.add_argument("--model", default="base")
    parser.add_argument("--precision", choices=("float32", "int8"), default="float32")
    parser.add_argument("--files", type=int, default=12)
    args = parser.parse_args()
    name = args.model if args.precision == "float32" else f"{args.model}, {args.precision}"
    for section in args.sections:
        found = SECTIONS[section](args.model, args.precision, args.files)
        results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        results.setdefault(name, {})[section] = found
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
