"""What a listener sees, measured from outside over real websockets.

    python -m tests.benchmarks.bench_captions [nonspeech] [mixed] [edges] [gapless] [times] [--quick] [--output FILE]

Each section starts a daemon of its own, as an installation has it by default, and replaces its part of
docs/captions.json. Nothing here is timed but in audio time, so that a busy machine changes no figure.
"""

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.demo import Running
from model.bench.word_errors import normalised, word_errors
from streaming.protocol import SAMPLE_RATE, Final
from tests.benchmarks import bench_service
from tests.benchmarks.bench_hearing import mixed as mixed_sound
from tests.benchmarks.bench_hearing import sounds
from tests.benchmarks.bench_stream import Take, stream, voiced_range
from tests.support.audio import Recording, recordings

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "captions.json"
CHUNKS = {"20 ms": 320, "100 ms": 1_600, "1 s": 16_000, "odd": 4_999}  # samples
PAUSE = np.zeros(SAMPLE_RATE, np.float32)
BESIDE = 12  # live sessions at once, where nothing is timed

DEFINITIONS = {
    "nonspeech": "the shared non-speech and made noise, live, whole and as clips of 1.5 s: words of finals, "
    "and of the last partial that an utterance left on the screen; target 0",
    "mixed": "test-other files, clean and with non-speech under them at this ratio, 1.5 s before and behind: end of "
    "the last final minus end of the file, in audio time; WER after Whisper's normaliser",
    "edges": "share of files whose first and whose last word is in the first and the last final, for each "
    "size of the chunks that are sent, and of each file decoded whole; digits between pauses of 0.4 s: share that is answered, with words "
    "and with the right one",
    "gapless": "clips of one reader joined to 75 s, each trimmed to its voiced part: the longest "
    "utterance, and words lost or added where finals meet (as in service.json)",
    "times": "clips joined with a second of silence between: first word's start minus the clip's first "
    "voiced sample, last word's end minus its last one, in absolute seconds",
}


def spread(errors: Sequence[float]) -> dict[str, float]:
    """Median, 90th percentile and maximum, two digits."""
    median, p90, most = np.percentile(errors, [50, 90, 100]).round(3).tolist()
    return {"count": len(errors), "median": median, "p90": p90, "max": most}


async def takes(running: Running, audios: Sequence[NDArray[np.float32]], **how: Any) -> list[Take]:
    """Each streamed in a session of its own, as fast as it is read."""
    results = []
    for number, audio in enumerate(audios, 1):
        results.append(await stream(running.url, audio, realtime=False, **how))
        print(f"{number}/{len(audios)}", flush=True)
    return results


def left_on_screen(take: Take) -> list[str]:
    """What partials showed of utterances whose final then took it back."""
    finals = {final.utterance: final.text for final in take.finals}
    return [
        series[-1][1].text
        for utterance, series in take.partials().items()
        if not finals.get(utterance, "").strip()
    ]


async def nonspeech(args: argparse.Namespace) -> dict[str, Any]:
    """Words where nobody speaks: at the pace of life, and of each sound a short clip by itself."""
    found = sounds(quick=args.quick)
    clips = {name: audio[: SAMPLE_RATE * 3 // 2] for name, audio in found.items()}
    figures: dict[str, Any] = {"audio_s": round(sum(map(len, found.values())) / SAMPLE_RATE, 1)}
    async with bench_service.daemon(args.model) as running:
        for language in ("en", None):
            # Every clip is decoded, whatever is in it: two at once are as many as two cores take.
            for kind, audios, sessions in (("whole", found, BESIDE), ("clips", clips, 2)):
                results = await beside(running, audios.values(), language, sessions)
                takes = dict(zip(audios, results, strict=True))
                figures[f"{kind}, language {language or 'detected'}"] = invented(takes)
    return figures


async def beside(
    running: Running, audios: Iterable[NDArray[np.float32]], language: str | None, sessions: int
) -> list[Take]:
    """Each streamed live, so many at once."""
    free = asyncio.Semaphore(sessions)

    async def one(audio: NDArray[np.float32]) -> Take:
        async with free:
            return await stream(running.url, audio, realtime=True, partials=True, language=language)

    return await asyncio.gather(*map(one, audios))


def invented(takes: dict[str, Take]) -> dict[str, Any]:
    """Words that nobody said."""
    words = {
        name: [final.text for final in take.finals if final.text.strip()]
        for name, take in takes.items()
    }
    shown = {name: left for name, take in takes.items() if (left := left_on_screen(take))}
    return {
        "utterances": sum(len(take.finals) for take in takes.values()),
        "words_in_finals": sum(len(text.split()) for texts in words.values() for text in texts),
        "words_shown_by_partials": sum(
            len(text.split()) for texts in shown.values() for text in texts
        ),
        "finals": {name: texts for name, texts in words.items() if texts},
        "partials": shown,
    }


async def mixed(args: argparse.Namespace) -> dict[str, Any]:
    """Endpoints and words under noise."""
    files = recordings(under=bench_service.TEST_OTHER)[: 2 if args.quick else 24]
    audible = [one for one in sounds(quick=args.quick).values() if np.mean(one**2) > 1e-9]
    figures: dict[str, Any] = {}
    async with bench_service.daemon(args.model) as running:
        for ratio in (None, 20, 10):
            audios = [
                mixed_sound(one.audio(), audible[(5 * number + 3) % len(audible)], ratio)
                for number, one in enumerate(files)
            ]
            results = await takes(running, audios, partials=False)
            late = [
                take.finals[-1].end - 1.5 - one.seconds
                for one, take in zip(files, results, strict=True)
                if take.finals
            ]
            figures["clean" if ratio is None else f"{ratio} dB"] = {
                "heard": len(late),
                "end_late_s": spread(late),
                **word_errors([one.transcript for one in files], [take.text for take in results]),
            }
    return {"files": len(files), **figures}


def edge_shares(files: Sequence[Recording], texts: Sequence[str]) -> dict[str, float]:
    """Files whose first word, and whose last, is one of the first two, or last two, of the text."""
    pairs = [
        (normalised(one.transcript).split(), normalised(text).split())
        for one, text in zip(files, texts, strict=True)
    ]
    return {
        "first_word_percent": share([wanted[0] in got[:2] for wanted, got in pairs]),
        "last_word_percent": share([wanted[-1] in got[-2:] for wanted, got in pairs]),
    }


async def edges(args: argparse.Namespace) -> dict[str, Any]:
    """First and last words, in chunks of several sizes, and words that are all there is."""
    files = recordings(under=bench_service.TEST_OTHER)[: 2 if args.quick else None]
    digits = recordings(under="free_spoken_digits/")[:: 20 if args.quick else 1]
    figures: dict[str, Any] = {"files": len(files), "digits": len(digits)}
    async with bench_service.daemon(args.model) as running:
        for name, block in CHUNKS.items():
            results = await takes(
                running, [one.audio() for one in files], partials=False, block=block
            )
            figures[name] = edge_shares(files, [take.text for take in results])
        quiet = PAUSE[: 2 * SAMPLE_RATE // 5]
        said = [np.concatenate([quiet, one.audio(), quiet]) for one in digits]
        results = await takes(running, said, partials=False)
    pairs = list(zip(digits, results, strict=True))
    whole = bench_service.offline(args.model, [*files, *digits])
    figures["decoded_whole"] = edge_shares(files, whole[: len(files)]) | {
        "digits_right_percent": share(
            [
                normalised(one.transcript) == normalised(text)
                for one, text in zip(digits, whole[len(files) :], strict=True)
            ]
        )
    }
    figures["digits_answered_percent"] = share([bool(take.finals) for _, take in pairs])
    figures["digits_with_words_percent"] = share([bool(take.text) for _, take in pairs])
    figures["digits_right_percent"] = share(
        [normalised(one.transcript) == normalised(take.text) for one, take in pairs]
    )
    return figures


def share(hits: Sequence[bool]) -> float:
    """In per cent."""
    return round(100 * float(np.mean(hits)), 1)


def voiced_part(one: Recording) -> NDArray[np.float32]:
    """A clip without the silence around it."""
    audio = one.audio()
    first, last = voiced_range(audio)
    return audio[first : last + 1]


async def gapless(args: argparse.Namespace) -> dict[str, Any]:
    """Speech that never pauses: where it is cut, and what that costs."""
    clips, parts, length = [], [], 0
    for one in recordings(under=bench_service.CHAPTER):
        if length >= (35 if args.quick else 75) * SAMPLE_RATE:
            break
        clips.append(one)
        parts.append(voiced_part(one))
        length += len(parts[-1])
    async with bench_service.daemon(args.model) as running:
        (take,) = await takes(running, [np.concatenate(parts)], partials=False)
    whole = bench_service.offline(args.model, clips)
    return {
        "audio_s": round(length / SAMPLE_RATE, 1),
        "utterances_s": [round(final.end - final.start, 2) for final in take.finals],
        **bench_service.seam_errors(
            [one.transcript for one in clips], [f.text for f in take.finals], whole
        ),
        **word_errors([" ".join(one.transcript for one in clips)], [take.text]),
    }


async def times(args: argparse.Namespace) -> dict[str, Any]:
    """Word timestamps beside where clips are known to begin and to end."""
    files = recordings(under=bench_service.TEST_OTHER)[: 3 if args.quick else 40]
    parts, wanted, at = [PAUSE], [], len(PAUSE)
    for one in files:
        part = voiced_part(one)
        wanted.append((at / SAMPLE_RATE, (at + len(part)) / SAMPLE_RATE))
        parts += [part, PAUSE]
        at += len(part) + len(PAUSE)
    async with bench_service.daemon(args.model) as running:
        (take,) = await takes(running, [np.concatenate(parts)], partials=False, words=True)
    words = [word for final in take.finals for word in final.words or []]
    begins, stops = [], []
    for start, end in wanted:
        inside = [word for word in words if start - 0.5 < (word.start + word.end) / 2 < end + 0.5]
        if inside:
            begins.append(abs(inside[0].start - start))
            stops.append(abs(inside[-1].end - end))
    order = [edge for word in words for edge in (word.start, word.end)]
    return {
        "clips": len(files),
        "found": len(begins),
        "words": len(words),
        "monotonic": order == sorted(order),
        "within_utterances": all(_inside(final) for final in take.finals),
        "first_word_start_s": spread(begins),
        "last_word_end_s": spread(stops),
    }


def _inside(final: Final) -> bool:
    return all(final.start <= word.start <= word.end <= final.end for word in final.words or [])


SECTIONS: dict[str, bench_service.Section] = {
    "nonspeech": nonspeech,
    "mixed": mixed,
    "edges": edges,
    "gapless": gapless,
    "times": times,
}


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_captions")
    parser.add_argument("--quick", action="store_true", help="a few files, to see that it works")
    args = bench_service.options(parser, SECTIONS, RESULTS, ["quick"])
    asyncio.run(bench_service.run(args, SECTIONS, DEFINITIONS))


if __name__ == "__main__":
    main()
