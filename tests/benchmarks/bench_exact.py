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
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model.checkpoints.load import load
from model.drafting.drafter_files import TrainedDrafter, bundled, load_drafter
from model.drafting.interface import Proposer
from model.drafting.previous_text import PreviousText
from model.engine.engine import Engine
from model.engine.rejection_sampler import DRAFT, accept, sample, uniform, warm_softmax
from model.engine.requests import Request
from model.engine.sequence import Sequence
from model.whisper.quantised import Precision
from tests.support.audio import recordings
from tests.support.oracles import Adversary, Guesser, Oracle, run_shuffled

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "exactness.json"
BLOCKS = (1, 2, 4, 8)
SLOTS = (1, 2, 4, 8, 16)
DRAWS = 2_000
FIRST = 3  # tokens of each draw


def tokens(model: str, precision: Precision, files: int) -> dict[str, Any]:
    """Mismatching tokens over all combinations."""
    checkpoint = load(model)
    every = [one for one in recordings(language="en") if one.seconds <= 30]
    chosen = every[:: max(len(every) // files, 1)][:files]
    requests = [Request(one.audio()[: 30 * 16_000], language="en") for one in chosen]
    plain = {
        request: one.tokens
        for request, one in zip(
            requests,
            Engine(checkpoint, slots=1, proposer=lambda _: None, precision=precision).transcribe(
                requests
            ),
            strict=True,
        )
    }
    eot = checkpoint.tokens.eot
    proposers: dict[str, Callable[[Request], Proposer | None]] = {
        "none": lambda _: None,
        "oracle": lambda request: Oracle(plain[request], acceptance=0.575),
        "random": lambda _: Guesser(eot),
        "adversarial": lambda request: Adversary(plain[request], eot),
        "reuse": lambda request: PreviousText(plain[requests[requests.index(request) - 1]]),
    }
    compared = mismatches = utterances = 0
    for slots in SLOTS:
        engine = Engine(checkpoint, slots=slots, precision=precision)
        for name, proposer in proposers.items():
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
        "proposers": list(proposers),
        "blocks": [0, *BLOCKS],
        "slots": list(SLOTS),
        "utterances_compared": utterances,
        "tokens_compared": compared,
        "mismatching_tokens": mismatches,
    }


class Chain:
    """The target's distribution of the next token after each prefix of one utterance, cached."""

    def __init__(
        self, model: str, precision: Precision, audio: np.ndarray[Any, np.dtype[np.float32]]
    ) -> None:
        self._engine = Engine(load(model), slots=1, precision=precision)
        runner = self._engine.runner
        self._tokens = runner.tokens
        with torch.inference_mode():
            runner.encode([Sequence(Request(audio), "en")], 0, runner.window)
        self._prompt_tokens = self._tokens.prompt_tokens([], "en", "transcribe")
        self._known: dict[tuple[int, ...], torch.Tensor] = {}

    @torch.inference_mode()
    def logits(self, prefix: tuple[int, ...]) -> torch.Tensor:
        """[vocabulary], with the token rules applied."""
        if prefix not in self._known:
            runner = self._engine.runner
            text = torch.tensor([[*self._prompt_tokens, *prefix]])
            hidden, _ = runner.whisper.decoder(
                text,
                torch.zeros(1, dtype=torch.int64),
                torch.tensor([runner.window]),
                runner.state.cache.rows(0, 1),
                64,
                runner.window,
            )
            bias = self._tokens.bias(first=not prefix)
            self._known[prefix] = runner.whisper.decoder.logits(hidden[0, -1]) + bias
        return self._known[prefix]


def sampling(model: str, precision: Precision, _files: int) -> dict[str, Any]:
    """Chi-square p-values at two temperatures, for two drafters: a noisy target and a narrow one."""
    audio = recordings(under="ami_meetings")[1].audio()[: 6 * 16_000]
    chain = Chain(model, precision, audio)
    rows = []
    for temperature in (0.4, 1.0):
        plain = draw(chain, temperature, k=0, narrow=False, seeds=range(DRAWS))
        for narrow in (False, True):
            speculative = draw(
                chain, temperature, k=4, narrow=narrow, seeds=range(DRAWS, 2 * DRAWS)
            )
            p, outcomes, alpha = compare(plain, speculative)
            rows.append(
                {
                    "temperature": temperature,
                    "drafter": "narrow" if narrow else "noisy",
                    "draws": DRAWS,
                    "outcomes": outcomes,
                    "p_value": p,
                    "accepted_share": alpha,
                }
            )
            print(rows[-1], flush=True)
    return {"tokens": FIRST, "rows": rows}


Drawn = list[tuple[tuple[int, ...], int, int]]  # text, proposed, accepted


def draw(chain: Chain, temperature: float, *, k: int, narrow: bool, seeds: range) -> Drawn:
    """Texts of FIRST tokens; with k > 0 by the engine's rejection rule."""
    results: Drawn = []
    temperatures = torch.tensor([temperature])
    for seed in seeds:
        text: tuple[int, ...] = ()
        proposed = accepted = 0
        key = torch.tensor([seed])
        while len(text) < FIRST:
            context, distributions, block = text, [], []
            for slot in range(k):
                logits = drafted(chain, context, narrow=narrow)
                distribution = warm_softmax(logits[None, None], temperatures)[0, 0]
                numbers = uniform(key, torch.tensor([len(text) + slot]), DRAFT)
                token = int(sample(distribution[None], numbers))
                distributions.append(distribution)
                block.append(token)
                context = (*context, token)
            target = [chain.logits((*text, *block[:slot])) for slot in range(k + 1)]
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
        results.append((text[:FIRST], proposed, accepted))
    return results


def drafted(chain: Chain, prefix: tuple[int, ...], *, narrow: bool) -> torch.Tensor:
    """A drafter's logits: the target's with fixed noise, or its 20 best tokens alone."""
    logits = chain.logits(prefix)
    if narrow:
        best = logits.topk(20).indices
        cut = torch.full_like(logits, -torch.inf)
        cut[best] = logits[best] * 0.7
        return cut
    noise = torch.randn(len(logits), generator=torch.Generator().manual_seed(hash(prefix) % 2**31))
    return logits + noise


def compare(plain: Drawn, speculative: Drawn) -> tuple[float, int, float]:
    """A two-sample chi-square test: p-value, outcomes, accepted share.

    Outcomes seen fewer than ten times count as one.
    """
    counts = [Counter(text for text, _, _ in drawn) for drawn in (plain, speculative)]
    common = [text for text, n in (counts[0] + counts[1]).items() if n >= 10]
    table = np.array(
        [[c[t] for t in common] + [sum(c.values()) - sum(c[t] for t in common)] for c in counts],
        dtype=float,
    )
    table = table[:, table.sum(0) > 0]
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    chi2 = float(((table - expected) ** 2 / expected).sum())
    freedom = table.shape[1] - 1
    p = float(torch.special.gammaincc(torch.tensor(freedom / 2.0), torch.tensor(chi2 / 2.0)))
    proposed = sum(n for _, n, _ in speculative)
    return p, table.shape[1], sum(n for _, _, n in speculative) / max(proposed, 1)


def bundled_networks(model: str, precision: Precision, files: int) -> dict[str, Any]:
    """Greedy decoding with and without the bundled drafter, on test-other and `files` others."""
    checkpoint = load(model)

    def engine(drafter: TrainedDrafter | None) -> Engine:
        return Engine(checkpoint, slots=8, drafter=drafter, precision=precision)

    engines = {"plain": engine(None)}
    if (file := bundled(checkpoint)) is not None:
        engines["drafter"] = engine(load_drafter(file, checkpoint))
    every = [one for one in recordings(language="en") if one.seconds <= 30]
    first = [one for one in every if one.name.startswith("librispeech_testother")]
    others = [one for one in every if one not in first]
    parts = {"test-other": first, "others": others[:: max(len(others) // files, 1)][:files]}
    found: dict[str, Any] = {}
    for name, chosen in parts.items():
        requests = [Request(one.audio()[: 30 * 16_000], language="en") for one in chosen]
        wanted = engines["plain"].transcribe(requests)
        tokens = sum(len(one.tokens) for one in wanted)
        found[name] = {"files": len(requests), "tokens": tokens}
        for kind, one in engines.items():
            got = one.transcribe(requests) if kind != "plain" else wanted
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
