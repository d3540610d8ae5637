"""Turns within an utterance: which sentences a session's finals lose, with and without coverage.

    python -m tests.benchmarks.bench_turns [pairs] [triples] [mixed] [--limit N] [--model NAME] [--output FILE]

Each section replaces its part of docs/turns.json. One thread; CPU time, so that the machine need not be quiet.
"""

import argparse
import json
import re
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import torch

from daemon.recognition import request_builder
from model.bench.word_errors import normalised
from model.checkpoints.load import load
from model.engine.engine import Engine
from model.engine.fallback import FALLBACK_TEMPERATURES
from model.engine.offline import transcribe
from model.engine.requests import Request
from streaming.protocol import SAMPLE_RATE, Start
from streaming.session import Session
from tests.benchmarks.bench_service import machine
from tests.support.streams import feed, finals
from tests.support.turns import Samples, Sentence, Turns, english_turns, mixed_turns

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "turns.json"
SIZES = {"pairs": 100, "triples": 30, "mixed": 6}  # mixed: for each order of two languages
AROUND = np.zeros(SAMPLE_RATE * 3 // 10, np.float32)  # silence about a sentence alone

DEFINITIONS = {
    "lost": "sentences with more than half of their words deleted in the alignment of all of the utterance's",
    "found": "sentences of which at least half of the words are right",
    "wer_percent": "of the utterances, each aligned as a whole; English by Whisper's normaliser, two languages "
    "without case and punctuation, a Chinese character as a word",
    "alone": "the same sentences, each decoded by itself in its own language",
    "plain, covered": "without and with coverage, through a session with the default settings",
    "cpu_s": "of decoding, on one thread",
    "voiced_s, covered_s": "as the finals tell",
}


@dataclass(slots=True)
class Score:
    """What became of the sentences of many utterances."""

    utterances: int = 0
    sentences: int = 0
    lost: int = 0
    found: int = 0
    words: int = 0
    substituted: int = 0
    deleted: int = 0
    inserted: int = 0
    cpu_s: float = 0.0
    voiced_s: float = 0.0
    covered_s: float = 0.0
    losers: list[str] = field(default_factory=list)

    def add(self, name: str, references: Sequence[str], text: str) -> None:
        """An utterance's: normalised sentences, normalised text."""
        wanted = [reference.split() for reference in references]
        deleted, hits, inserted, substituted = aligned(wanted, text.split())
        gone = [d > len(one) / 2 for d, one in zip(deleted, wanted, strict=True)]
        self.utterances += 1
        self.sentences += len(wanted)
        self.lost += sum(gone)
        self.found += sum(h >= len(one) / 2 for h, one in zip(hits, wanted, strict=True))
        self.words += sum(map(len, wanted))
        self.substituted += substituted
        self.deleted += sum(deleted)
        self.inserted += inserted
        if any(gone):
            self.losers.append(name)

    def figures(self) -> dict[str, Any]:
        """For the file."""
        errors = self.substituted + self.deleted + self.inserted
        return {
            "utterances": self.utterances,
            "sentences": self.sentences,
            "lost": self.lost,
            "lost_percent": round(100 * self.lost / max(self.sentences, 1), 1),
            "found_percent": round(100 * self.found / max(self.sentences, 1), 1),
            "words": self.words,
            "wer_percent": round(100 * errors / max(self.words, 1), 2),
            "deleted": self.deleted,
            "inserted": self.inserted,
            "cpu_s": round(self.cpu_s, 1),
            "voiced_s": round(self.voiced_s, 1),
            "covered_s": round(self.covered_s, 1),
            "losers": self.losers,
        }


def aligned(
    references: Sequence[Sequence[str]], words: Sequence[str]
) -> tuple[list[int], list[int], int, int]:
    """Deleted and right words by sentence, then inserted and substituted ones, of the least alignment."""
    whose = [n for n, reference in enumerate(references) for _ in reference]
    deleted, hits = [0] * len(references), [0] * len(references)
    if not words:
        return [len(reference) for reference in references], hits, 0, 0
    every = " ".join(word for reference in references for word in reference)
    out = jiwer.process_words(every, " ".join(words))
    counts = {"delete": deleted, "equal": hits}
    for chunk in out.alignments[0]:
        for at in range(chunk.ref_start_idx, chunk.ref_end_idx):
            if chunk.type in counts:
                counts[chunk.type][whose[at]] += 1
    return deleted, hits, out.insertions, out.substitutions


def plain_words(text: str) -> str:
    """Without case and punctuation, in any language; a Chinese character is a word."""
    text = unicodedata.normalize("NFKC", text).lower()
    text = re.sub(r"([\u3400-\u9fff])", r" \1 ", text)
    return " ".join(re.sub(r"[^\w\s']", " ", text).split())


def requests_of(audio: Samples, language: str | list[str] | None) -> list[Request]:
    """What a session asks for: of one utterance, or of several where a pause ended one."""
    start = Start(language=language, encoding="f32le", partials=False)
    stream = Session(start)
    padded = np.append(audio, np.zeros(SAMPLE_RATE, np.float32)).astype("<f4")
    works = [*finals(feed(stream, padded.tobytes())), *finals(stream.stop())]
    return [request_builder.request(start, work) for work in works]


def decode(engine: Engine, requests: Sequence[Request], score: Score) -> str:
    """The text, with its time and its coverage in `score`."""
    began = time.thread_time()
    outputs = transcribe(engine, requests)
    score.cpu_s += time.thread_time() - began
    score.voiced_s += sum(output.voiced for output in outputs)
    score.covered_s += sum(output.covered for output in outputs)
    return " ".join(output.text for output in outputs)


def alone(sentence: Sentence) -> Request:
    """The request for one sentence by itself."""
    return Request(
        np.concatenate([AROUND, sentence.audio, AROUND]),
        language=sentence.language,
        stop_on_repetition=True,
        fallback_temperatures=FALLBACK_TEMPERATURES,
    )


def english(engine: Engine, found: Sequence[Turns]) -> dict[str, Any]:
    """Pairs or triples, beside their sentences alone."""
    scores = {name: Score() for name in ("alone", "plain", "covered")}
    for one in found:
        asked = requests_of(one.audio, "en")
        ways = {
            "alone": [alone(sentence) for sentence in one.sentences],
            "plain": [replace(request, speech=()) for request in asked],
            "covered": asked,
        }
        references = [normalised(text) for text in one.texts]
        for name, requests in ways.items():
            text = normalised(decode(engine, requests, scores[name]))
            scores[name].add(one.name, references, text)
        print(one.name, {name: score.lost for name, score in scores.items()}, flush=True)
    return {name: score.figures() for name, score in scores.items()}


def mixed(engine: Engine, found: Sequence[Turns]) -> dict[str, Any]:
    """Two languages: detected among all, among the two, and English alone where it is one of them."""
    scores: dict[str, dict[str, Score]] = {}
    for one in found:
        asks: dict[str, str | list[str] | None] = {"any": None, "list": sorted(one.languages)}
        if "en" in one.languages:
            asks["en"] = "en"
        for ask, language in asks.items():
            asked = requests_of(one.audio, language)
            ways = {"plain": [replace(request, speech=()) for request in asked], "covered": asked}
            for name, requests in ways.items():
                score = scores.setdefault(ask, {}).setdefault(name, Score())
                text = plain_words(decode(engine, requests, score))
                score.add(one.name, [plain_words(said) for said in one.texts], text)
        print(
            one.name, {a: {n: s.lost for n, s in w.items()} for a, w in scores.items()}, flush=True
        )
    return {
        ask: {name: score.figures() for name, score in ways.items()} for ask, ways in scores.items()
    }


def section(name: str, engine: Engine, limit: int | None) -> dict[str, Any]:
    """Make the section's utterances and decode them."""
    most = SIZES[name] if limit is None else min(limit, SIZES[name])
    if name == "mixed":
        return mixed(engine, mixed_turns(most))
    return english(engine, english_turns(most, 2 if name == "pairs" else 3))


def main() -> None:
    """Decode, and write what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_turns")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SIZES))
    parser.add_argument("--limit", type=int, help="utterances a section; mixed: for each order")
    parser.add_argument("--model", default="base", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=RESULTS, help="default: %(default)s")
    args = parser.parse_args()
    if unknown := set(args.sections) - set(SIZES):
        parser.error(f"no section {', '.join(sorted(unknown))}: there are {', '.join(SIZES)}")
    torch.set_num_threads(1)
    engine = Engine(load(args.model), slots=1)
    results: dict[str, Any] = {}
    if args.output.is_file():
        results = json.loads(args.output.read_text(encoding="utf-8"))
    results |= {"definitions": DEFINITIONS, "machine": machine(), "model": args.model}
    for name in args.sections or SIZES:
        results[name] = section(name, engine, args.limit)
        args.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
