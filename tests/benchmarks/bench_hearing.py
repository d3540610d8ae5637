"""The detectors beside one another, on shared speech and non-speech. No model, no daemon.

    python -m tests.benchmarks.bench_hearing [--quick] [--output FILE]

Every detector with the segmenter around it, as in a session: what of the speech lies in utterances, how
much of the non-speech does, and when an utterance ends under noise. Writes docs/hearing.json.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from streaming.protocol import SAMPLE_RATE, Start
from streaming.segmenter import CLIP
from streaming.session import Session
from streaming.settings import Settings
from streaming.silero import Silero
from streaming.utterance import Decode
from streaming.vad import VoiceActivity, WebRtcVad, detector
from tests.benchmarks.bench_stream import FRAME, voiced_frames
from tests.support.audio import recordings
from tests.support.streams import coloured_noise

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "hearing.json"
Samples = NDArray[np.float32]
Span = tuple[int, int]

DEFINITIONS = {
    "speech": "per folder: share of voiced 10 ms frames (at most 30 dB below the loudest) that lie in "
    "utterances; files without any utterance",
    "non_speech": "seconds in utterances for each minute of sound, and how many utterances",
    "end_late": "test-other files with non-speech mixed under them that goes on for 1.5 s: end of the "
    "last utterance minus end of the file, in seconds; from 1.5 on it did not end before the sound",
    "ms_per_second": "processing time for a second of audio, segmenter included",
}
SPEECH = {
    "librispeech_testother": 25,
    "free_spoken_digits": 83,
    "phone_aws": 1,
    "ami_meetings": 2,
    "ham_radio": 8,
    "german_kerstin": 8,
    "mandarin_hsk_words": 20,
}
DETECTORS: dict[str, tuple[int, Callable[[], VoiceActivity]]] = {
    "silero": (60, Silero),
    **{f"webrtc {mode}": (120, partial(WebRtcVad, mode)) for mode in range(4)},
    **{f"webrtc {mode} gated": (120, partial(detector, "webrtc", mode)) for mode in range(4)},
}


def spans(audio: Samples, minimum_ms: int, vad: VoiceActivity) -> list[Span]:
    """Where a session's utterances lie. It goes on for a while: a short clip is decoded, heard or not."""
    audio = np.append(audio, np.zeros(CLIP + 1, np.float32))
    settings = Settings(minimum_speech_ms=minimum_ms)
    session = Session(Start(encoding="f32le", partials=False), settings, vad=vad)
    outputs = session.feed(audio.astype("<f4").tobytes())
    while session.unprocessed:
        outputs += session.process()
    outputs += session.stop()
    return [(one.start, one.stop) for one in outputs if isinstance(one, Decode) and one.final]


def covered(audio: Samples, found: list[Span]) -> tuple[int, int]:
    """Voiced frames within the spans, and all of them."""
    mask = voiced_frames(audio, 30.0)
    inside = np.zeros(len(mask), bool)
    for start, stop in found:
        inside[start // FRAME : -(-stop // FRAME)] = True
    return int((mask & inside).sum()), int(mask.sum())


def telephone(audio: Samples) -> Samples:
    """Through 8 kHz and back."""
    narrow = soxr.resample(audio, SAMPLE_RATE, 8_000)
    return np.asarray(soxr.resample(narrow, 8_000, SAMPLE_RATE), np.float32)


def mixed(speech: Samples, sound: Samples, decibels: float | None) -> Samples:
    """Speech between 1.5 s of pauses, all of it over `sound` at this ratio; None: over nothing."""
    pause = np.zeros(3 * SAMPLE_RATE // 2, np.float32)
    padded = np.concatenate([pause, speech, pause])
    if decibels is None:
        return padded
    under = np.resize(sound, len(padded))
    scale = np.sqrt(np.mean(speech**2) / np.mean(under**2)) * 10 ** (-decibels / 20)
    return np.asarray((padded + under * scale).clip(-1, 1), np.float32)


def sounds(*, quick: bool) -> dict[str, Samples]:
    """Everything that is no speech."""
    files = [one for one in recordings(under="nonspeech") if one.language == "none"]
    found = {
        one.name: one.audio() for one in files[:: 6 if quick else 1] if "babble" not in one.name
    }
    seconds = 5 if quick else 60
    for colour in ("white", "pink", "brown", "hum"):
        for level in (-60, -40, -20):
            found[f"{colour} {level} dBFS"] = coloured_noise(colour, level, seconds)
    return found | {
        "silence": np.zeros(seconds * SAMPLE_RATE, np.float32),
        "clicks": clicks(seconds),
    }


def clicks(seconds: int) -> Samples:
    """A burst of 10 ms, at -10 dBFS, about once a second."""
    audio = np.zeros(seconds * SAMPLE_RATE, np.float32)
    dice = np.random.default_rng(4)
    for start in range(SAMPLE_RATE, len(audio) - SAMPLE_RATE, SAMPLE_RATE + 7):
        audio[start : start + FRAME] = 0.3 * dice.standard_normal(FRAME)
    return audio.clip(-1, 1)


def judge(name: str, others: dict[str, Samples], *, quick: bool) -> dict[str, Any]:
    """One detector's figures."""
    minimum, make = DETECTORS[name]
    began, seconds = time.perf_counter(), 0.0
    speech: dict[str, Any] = {}
    clips = {
        group: [one.audio()[: 60 * SAMPLE_RATE] for one in recordings(under=group)][
            : 2 if quick else count
        ]
        for group, count in SPEECH.items()
    }
    clips["test-other by telephone"] = [telephone(one) for one in clips["librispeech_testother"]]
    for group, audios in clips.items():
        if not audios:
            continue
        found = [spans(audio, minimum, make()) for audio in audios]
        inside, every = np.sum([covered(*pair) for pair in zip(audios, found, strict=True)], 0)
        speech[group] = {
            "covered_percent": round(100 * float(inside / every), 1),
            "silent": sum(not one for one in found),
            "files": len(audios),
        }
        seconds += sum(map(len, audios)) / SAMPLE_RATE
    elapsed = time.perf_counter() - began
    heard = {one: spans(audio, minimum, make()) for one, audio in others.items()}
    taken = {one: sum(b - a for a, b in found) / SAMPLE_RATE for one, found in heard.items()}
    minutes = sum(map(len, others.values())) / SAMPLE_RATE / 60
    return {
        "speech": speech,
        "non_speech": {
            "seconds_per_minute": round(sum(taken.values()) / minutes, 2),
            "utterances": sum(map(len, heard.values())),
            "most_s": dict(sorted(taken.items(), key=lambda one: -one[1])[:5]),
        },
        "end_late": {
            f"{ratio} dB": ends(clips["librispeech_testother"][:12], others, ratio, minimum, make)
            for ratio in (20, 10)
        },
        "ms_per_second": round(1000 * elapsed / seconds, 2),
    }


def ends(
    clips: list[Samples],
    others: dict[str, Samples],
    ratio: int,
    minimum: int,
    make: Callable[[], VoiceActivity],
) -> dict[str, Any]:
    """How late utterances end under noise; the noises take turns."""
    audible = [sound for sound in others.values() if np.mean(sound**2) > 1e-9]
    late = []
    for number, clip in enumerate(clips):
        sound = audible[(5 * number + 3) % len(audible)]
        found = spans(mixed(clip, sound, ratio), minimum, make())
        if found:
            late.append(found[-1][1] / SAMPLE_RATE - 1.5 - len(clip) / SAMPLE_RATE)
    p50, p90, most = np.percentile(late, [50, 90, 100]).round(2).tolist()
    return {"files": len(clips), "heard": len(late), "median": p50, "p90": p90, "most": most}


def main() -> None:
    """Judge every detector, and write what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_hearing")
    parser.add_argument("--quick", action="store_true", help="two files a folder, to see it work")
    parser.add_argument("--output", type=Path, default=RESULTS, help="default: %(default)s")
    args = parser.parse_args()
    if args.quick and args.output == RESULTS:
        parser.error(f"a quick run is not for {RESULTS.name}: name another --output")
    others = sounds(quick=args.quick)
    results: dict[str, Any] = {"definitions": DEFINITIONS}
    for name in DETECTORS:
        results[name] = judge(name, others, quick=args.quick)
        print(name, json.dumps(results[name]["non_speech"]), flush=True)
        args.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
