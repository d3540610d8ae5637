"""The window of speech beside the full one: words, loops, times of words, and the encoder's time.

    python -m tests.benchmarks.bench_window [--model base] [--precision float32] [--subsets NAME …]
        [--minutes N] [--threads 1]

Every test recording is decoded in both windows, and test-other once more in ways that are hard: its first half
second, under white noise at 10 dB, and through a telephone. Recordings of over 30 s are cut into pieces. What is
decoded is kept in build/window, so that a run continues the last one, in an order that mixes the subsets.
docs/window.json has the summary, and every text that differs.
"""

import argparse
import io
import json
import statistics
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import soundfile
import soxr
import torch
from numpy.typing import NDArray
from transformers.models.whisper.english_normalizer import BasicTextNormalizer

from model.bench.word_errors import normalised
from model.checkpoints.load import Checkpoint, load
from model.drafting.drafter_files import AUTO, choose, load_drafter
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.whisper.mel import SAMPLE_RATE
from model.whisper.quantised import Precision
from model.whisper.window import Window, WindowKind
from tests.support.audio import Recording, recordings

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "docs" / "window.json"
KINDS: tuple[WindowKind, ...] = ("full", "speech")
OTHER = "librispeech_testother"
MOST_S, PIECE_S, NOISE_PIECES_S = 30, 12, (5, 12, 1.5)  # nothing is spoken in the last ones
BY_LETTERS = ("zh", "ja")  # languages whose words are letters here
Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Clip:
    """audio: made when it is needed. language: None to be detected. transcript: empty where none is known."""

    name: str
    subset: str
    language: str | None
    transcript: str
    audio: Callable[[], Samples]


def clips(known: list[str]) -> Iterator[Clip]:
    """All of them. known: the model's languages."""
    for one in recordings():
        folder, language = one.name.partition("/")[0], one.language[:2]
        if folder == "nonspeech":
            yield from pieces(one, folder, "en", NOISE_PIECES_S)
            continue
        spoken = language if language in known else None
        mixed = spoken != "en" and folder in {"peer_test_files", "watson_samples"}
        subset = "other languages" if mixed else folder
        if one.seconds > MOST_S:
            yield from pieces(one, subset, spoken, (PIECE_S,))
        else:
            yield Clip(one.name, subset, spoken, one.transcript, one.audio)
    for number, one in enumerate(recordings(under=OTHER)):
        yield Clip(f"half/{one.name}", "half a second", "en", "", partial(beginning, one))
        if number % 2:
            yield Clip(
                f"noise/{one.name}", "noise, 10 dB", "en", one.transcript, partial(noisy, one)
            )
        elif number % 4:
            made = partial(telephone, one)
            yield Clip(f"phone/{one.name}", "telephone", "en", one.transcript, made)


def mixed(every: Iterable[Clip]) -> list[Clip]:
    """A clip of each subset in turn, each subset in an order by chance."""
    order = sorted(every, key=lambda clip: zlib.crc32(clip.name.encode()))
    seen = Counter[str]()
    turns = {}
    for clip in order:
        turns[clip.name] = seen[clip.subset]
        seen[clip.subset] += 1
    return sorted(order, key=lambda clip: (turns[clip.name], clip.subset))


def pieces(
    one: Recording, subset: str, language: str | None, lengths: tuple[float, ...]
) -> Iterator[Clip]:
    """A recording in pieces of these lengths, in turn; a rest of under half a second is left out."""
    start = 0
    for number, length in zip(count(), cycle(lengths)):
        if start > (one.seconds - 0.5) * SAMPLE_RATE:
            return
        stop = start + int(length * SAMPLE_RATE)
        yield Clip(f"{one.name}/{number}", subset, language, "", partial(cut, one, start, stop))
        start = stop


def cut(one: Recording, start: int, stop: int) -> Samples:
    """Samples start … stop - 1."""
    return one.audio()[start:stop]


def beginning(one: Recording) -> Samples:
    """The first half second of speech: LibriSpeech's recordings begin with some silence."""
    audio = one.audio()
    loud = np.flatnonzero(np.abs(audio) > 0.05 * np.abs(audio).max())[0]
    return np.array(audio[loud : loud + SAMPLE_RATE // 2])


def noisy(one: Recording) -> Samples:
    """With white noise, 10 dB below the speech."""
    audio = one.audio()
    noise = np.random.default_rng(len(audio)).standard_normal(len(audio))
    return np.asarray(audio + noise * np.sqrt(np.mean(audio**2) / 10), np.float32)


def telephone(one: Recording) -> Samples:
    """8 kHz in mu-law, and back."""
    line = io.BytesIO()
    narrow = soxr.resample(one.audio(), SAMPLE_RATE, SAMPLE_RATE // 2)
    soundfile.write(line, narrow, SAMPLE_RATE // 2, format="WAV", subtype="ULAW")
    line.seek(0)
    heard, rate = soundfile.read(line, dtype="float32")
    return np.asarray(soxr.resample(heard, rate, SAMPLE_RATE), np.float32)


def decode(engine: Engine, clip: Clip, language: str | None, draft: list[int]) -> dict[str, Any]:
    """What one window says; a draft changes none of its tokens. Keeps the window's number of states."""
    audio = clip.audio()[: MOST_S * SAMPLE_RATE]
    request = Request(
        audio,
        language=language,
        words=clip.subset != "nonspeech",
        stop_on_repetition=True,
        draft_tokens=tuple(draft),
    )
    (output,) = transcribe(engine, [request])
    return {
        "states": engine.runner.window_of(request).states,
        "text": output.text,
        "language": output.language,
        "tokens": list(output.tokens),
        "loop": output.repetitive,
        "silent": output.silent,
        "times": [(round(w.start, 2), round(w.end, 2)) for w in output.timed or ()],
    }


def add(found: dict[str, Any], engines: dict[WindowKind, Engine], clip: Clip) -> bool:
    """Add to `found` what it lacks of a clip, or has from other windows; whether that was anything."""
    samples = len(clip.audio()[: MOST_S * SAMPLE_RATE])
    done = False
    for kind, engine in engines.items():
        states = engine.runner.windows.fitting(samples).states
        if found.get(kind, {}).get("states") == states:
            continue
        whole, done = found.get("full"), True
        if whole is None:
            found[kind] = decode(engine, clip, clip.language, [])
        elif states == whole["states"]:
            found[kind] = whole
        else:
            found[kind] = decode(engine, clip, whole["language"], whole["tokens"])
    found |= {"subset": clip.subset, "transcript": clip.transcript}
    found |= {"language": found["full"]["language"], "seconds": samples / SAMPLE_RATE}
    return done


def plain(text: str, language: str) -> str:
    """As words are compared."""
    if language == "en":
        return normalised(text)
    return str(BasicTextNormalizer(split_letters=language in BY_LETTERS)(text)).strip()


def errors(pairs: list[tuple[str, str]]) -> tuple[int, int]:
    """Errors of the second texts, and words of the first ones."""
    spoken = [pair for pair in pairs if pair[0]]
    added = sum(len(other.split()) for one, other in pairs if not one)
    if not spoken:
        return added, 0
    out = jiwer.process_words([one for one, _ in spoken], [other for _, other in spoken])
    words = out.hits + out.substitutions + out.deletions
    return added + out.substitutions + out.deletions + out.insertions, words


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of a subset."""
    texts = {kind: [plain(row[kind]["text"], row["language"]) for row in rows] for kind in KINDS}
    differ, words = errors(list(zip(texts["full"], texts["speech"], strict=True)))
    found: dict[str, Any] = {
        "clips": len(rows),
        "same_tokens": sum(row["full"]["tokens"] == row["speech"]["tokens"] for row in rows),
        "words": words,
        "words_that_differ": differ,
        "words_written": {kind: sum(len(t.split()) for t in texts[kind]) for kind in KINDS},
        "loops": {kind: sum(row[kind]["loop"] for row in rows) for kind in KINDS},
        "said_of_silence": {
            kind: sum(bool(row[kind]["text"]) and not row[kind]["silent"] for row in rows)
            for kind in KINDS
        },
    }
    known = [n for n, row in enumerate(rows) if row["transcript"]]
    if known:
        wanted = [plain(rows[n]["transcript"], rows[n]["language"]) for n in known]
        for kind in KINDS:
            wrong, spoken = errors(
                [(w, texts[kind][n]) for w, n in zip(wanted, known, strict=True)]
            )
            found[f"wer_percent_{kind}"] = round(100 * wrong / spoken, 2)
            found[f"errors_{kind}"], found["reference_words"] = wrong, spoken
    return found | times(rows)


def times(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How far the words' times are from the full window's, where the words are the same."""
    gaps = [
        abs(mine - theirs)
        for row in rows
        if row["full"]["tokens"] == row["speech"]["tokens"] and row["seconds"] <= 19
        for word, other in zip(row["speech"]["times"], row["full"]["times"], strict=True)
        for mine, theirs in zip(word, other, strict=True)
    ]
    if not gaps:
        return {}
    late = round(100 * sum(gap > 0.1 for gap in gaps) / len(gaps), 1)
    return {"times_mean_s": round(statistics.mean(gaps), 3), "times_over_0.1_s_percent": late}


def shares(engine: Engine) -> dict[str, Any]:
    """CPU time of the encoder for clips of some lengths, each as a share of the full window's."""
    runner = engine.runner
    whole = runner.windows.fitting(MOST_S * SAMPLE_RATE)

    def least(window: Window) -> float:
        mel = torch.zeros(1, runner.whisper.config.num_mel_bins, 2 * window.convolved)
        spent = []
        for _ in range(5):
            began = time.process_time()
            runner.whisper.encoder(mel, window)
            spent.append(time.process_time() - began)
        return min(spent)

    with torch.inference_mode():
        full, found = least(whole), dict[str, Any]()
        for seconds in (0.5, 2, 4, 7, 10, 15, 19):
            window = runner.windows.fitting(int(seconds * SAMPLE_RATE))
            share = round(least(window) / full, 2)
            found[str(seconds)] = {"own": window.own, "states": window.states, "share": share}
    return found


def report(kept: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """All figures, and the texts that differ."""
    kept = {name: found for name, found in kept.items() if set(KINDS) <= set(found)}
    rows = list(kept.values())
    english = [row for row in rows if row["language"] == "en" and row["transcript"]]
    subsets = {name: [row for row in rows if row["subset"] == name] for name in names(rows)}
    other = [
        {"name": name, **{kind: row[kind]["text"] for kind in KINDS}}
        for name, row in sorted(kept.items())
        if row["full"]["text"] != row["speech"]["text"]
    ]
    return {
        "all": summary(rows),
        "English with a transcript": summary(english) if english else {},
        "subsets": {name: summary(found) for name, found in subsets.items()},
        "other_texts": other,
    }


def names(rows: list[dict[str, Any]]) -> list[str]:
    """The subsets' names, in order."""
    return sorted({row["subset"] for row in rows})


def engines_of(checkpoint: Checkpoint, precision: Precision) -> dict[WindowKind, Engine]:
    """One for each window, with the bundled drafter where there is one."""
    bundled = choose(AUTO, checkpoint)
    drafter = None if bundled is None else load_drafter(bundled, checkpoint)
    return {
        kind: Engine(checkpoint, slots=1, drafter=drafter, precision=precision, window=kind)
        for kind in KINDS
    }


def main() -> None:
    """Decode what has not been decoded yet, for so many minutes at most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="base")
    parser.add_argument("--precision", choices=("float32", "int8"), default="float32")
    parser.add_argument("--subsets", nargs="+", help="only these (default: all)")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no clip after so many")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    store = ROOT / "build" / "window" / f"{args.model}-{args.precision}.json"
    store.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(store.read_text()) if store.is_file() else {}
    checkpoint = load(args.model)
    engines = engines_of(checkpoint, args.precision)
    every = mixed(clips(list(checkpoint.tokens.codes)))
    began = time.monotonic()
    wanted = [clip for clip in every if clip.subset in (args.subsets or {clip.subset})]
    for number, clip in enumerate(wanted, 1):
        if time.monotonic() - began > 60 * args.minutes:
            break
        if add(kept.setdefault(clip.name, {}), engines, clip):
            store.write_text(json.dumps(kept))
            print(f"{number}/{len(wanted)}", clip.name, flush=True)
    found = {"clips_in_all": len(every), **report(kept), "encoder": shares(engines["speech"])}
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    results[f"{args.model}, {args.precision}"] = found
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
