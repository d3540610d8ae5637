"""The running service, measured from outside over real websockets.

    python -m tests.benchmarks.bench_service [wer] [chapter] [idle]

Each section starts a daemon of its own, as an installation has it by default, and replaces its part
of docs/service.json. The machine must be quiet. What is decoded offline for comparison is decoded
after the daemon has stopped: the two would slow each other many times over.
"""

import argparse
import asyncio
import itertools
import json
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clients.captioning import Interrupt
from clients.demo import DAEMON, READY_S, Running, running_daemon
from daemon.serve import physical_cores
from model.bench.word_errors import normalised, word_errors
from model.engine.build import build
from model.engine.offline import transcribe
from model.engine.requests import Request
from streaming.protocol import SAMPLE_RATE, Final
from streaming.settings import Settings
from tests.benchmarks.bench_stream import Take, measured_load, stream
from tests.benchmarks.bench_words import Alignment, retracted
from tests.support.audio import Recording, recordings

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "service.json"
TEST_OTHER = "librispeech_testother_resemblyzer/"
CHAPTER = "librispeech_walleclipse/26-495-"
IDLE_S = 30
SILENT_CLIENTS = 10

DEFINITIONS = {
    "wer": "after Whisper's English text normaliser, all files together",
    "files_that_differ": "files whose normalised text is not the same from both",
    "after_last_word": "arrival of a final minus the sending of its utterance's last voiced sample; "
    "voiced: 10 ms frames at most 35 dB below the loudest of the utterance",
    "after_endpoint": "arrival of a final minus arrival of its utterance's speech end message",
    "first_partial": "arrival of an utterance's first partial minus the sending of its first "
    "voiced sample",
    "retracted_percent": "characters of words taken back from the screen, by later partials or by the "
    "final, of all that were shown; neither case nor marks count",
    "cadence": "from one partial of an utterance to the next, by arrival",
    "forced_cuts": "utterances in the last cap_ms - cut_search_ms … cap_ms of length that end "
    "where the next begins",
    "at_seams": "words lost or added, in runs that touch a place where one final ends and the next "
    "begins; each final normalised by itself",
    "also_offline": "those of them that happen, too, when the reference's clips are decoded one by "
    "one",
    "peak_rss_mib": "over the daemon's whole life, loading of the model included",
}


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2] for line in lines if line.startswith("model name")), "")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": model.strip() or platform.machine(),
        "logical_cpus": os.cpu_count(),
        "physical_cores": physical_cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def spread(seconds: Sequence[float]) -> dict[str, Any]:
    """Median, 90th percentile and maximum of at least one duration."""
    median, p90, greatest = np.percentile(seconds, [50, 90, 100]).round(3).tolist()
    return {"count": len(seconds), "median_s": median, "p90_s": p90, "max_s": greatest}


@asynccontextmanager
async def daemon(model: str) -> AsyncIterator[Running]:
    """A fresh one with default settings. Raises clients.demo.DemoError if it does not do well."""
    # The interrupt is never armed: Ctrl-C ends a benchmark as it ends any program.
    async with running_daemon(DAEMON, model, READY_S, Interrupt()) as running:
        assert running is not None
        yield running


def offline(model: str, files: Sequence[Recording]) -> list[str]:
    """Each file decoded by the engine in this process, whole and alone."""
    engine = build(model, device="cpu", threads=physical_cores())
    engine.warm_up()
    texts = []
    for number, one in enumerate(files, 1):
        (hypothesis,) = transcribe(engine, [Request(one.audio(), language="en")])
        texts.append(hypothesis.text)
        print(f"offline {number}/{len(files)} {one.name}", flush=True)
    return texts


async def wer(args: argparse.Namespace) -> dict[str, Any]:
    """Word errors of the service beside those of offline decoding of the same files."""
    files = recordings(under=TEST_OTHER)[: args.files]
    texts: list[str] = []
    async with daemon(args.model) as running:
        for number, one in enumerate(files, 1):
            take = await stream(running.url, one.audio(), realtime=False, partials=False)
            texts.append(take.text)
            print(f"service {number}/{len(files)} {one.name}", flush=True)
    whole = offline(args.model, files)
    references = [one.transcript for one in files]
    differ = [
        {"file": one.name, "reference": one.transcript, "service": ours, "offline": theirs}
        for one, ours, theirs in zip(files, texts, whole, strict=True)
        if normalised(ours) != normalised(theirs)
    ]
    return {
        "files": len(files),
        "audio_s": round(sum(one.seconds for one in files), 1),
        "service": word_errors(references, texts),
        "offline": word_errors(references, whole),
        "files_that_differ": len(differ),
        "differences": differ,
    }


async def chapter(args: argparse.Namespace) -> dict[str, Any]:
    """Delays, partials, cuts, words and load over a chapter read aloud, at the pace of speech."""
    clips = first_minutes(recordings(under=CHAPTER), args.minutes)
    audio = np.concatenate([clip.audio() for clip in clips])
    print(f"chapter: {len(clips)} clips, {len(audio) / SAMPLE_RATE / 60:.1f} min", flush=True)
    async with daemon(args.model) as running:
        with measured_load(running.pid) as used:
            take = await stream(running.url, audio, realtime=True, partials=True)
    clip_texts = offline(args.model, clips)
    references = [clip.transcript for clip in clips]
    whole = " ".join(references)
    return {
        "clips": len(clips),
        "audio_s": round(len(audio) / SAMPLE_RATE, 1),
        "sender_late_max_s": round(take.late, 3),
        "finals": delays(take),
        "utterances": utterances(take.finals),
        "partials": partial_figures(take),
        "load": used,
        "words": {
            "service": word_errors([whole], [take.text]),
            "offline_clips": word_errors([whole], [" ".join(clip_texts)]),
            **seam_errors(references, [final.text for final in take.finals], clip_texts),
        },
        "transcript": [[final.start, final.end, final.text] for final in take.finals],
    }


def first_minutes(clips: Sequence[Recording], minutes: float | None) -> list[Recording]:
    """Whole clips, as many as fit, one at least; all without a limit."""
    ends = list(itertools.accumulate(clip.seconds for clip in clips))
    fit = sum(minutes is None or end <= minutes * 60 for end in ends)
    return list(clips[: max(fit, 1)])


def delays(take: Take) -> dict[str, Any]:
    """How long finals with words were awaited."""
    ends = take.ends_of_speech()
    spoken = [(when, final) for when, final in take.all(Final) if final.text.strip()]
    return {
        "after_last_word": spread(
            [when - take.sent_at(take.voiced(f.start, f.end)[1]) for when, f in spoken]
        ),
        "after_endpoint": spread([when - ends[final.utterance] for when, final in spoken]),
    }


def utterances(finals: Sequence[Final]) -> dict[str, Any]:
    """Their number and lengths, and how many the cap ended."""
    settings = Settings()
    long = (settings.cap_ms - settings.cut_search_ms) / 1000
    cuts = [
        one.end
        for one, after in itertools.pairwise(finals)
        if one.end == after.start and one.end - one.start >= long
    ]
    return {
        "count": len(finals),
        "without_words": sum(not final.text.strip() for final in finals),
        "longest_s": round(max(final.end - final.start for final in finals), 2),
        "median_s": round(float(np.median([f.end - f.start for f in finals])), 2),
        "forced_cuts": len(cuts),
        "cuts_at_s": [round(cut, 2) for cut in cuts],
    }


def partial_figures(take: Take) -> dict[str, Any]:
    """How soon and how often partials come. Utterances without any are counted."""
    partials = take.partials()
    first = [
        partials[final.utterance][0][0] - take.sent_at(take.voiced(final.start, final.end)[0])
        for final in take.finals
        if final.utterance in partials
    ]
    steps = [
        after - before
        for series in partials.values()
        for (before, _), (after, _) in itertools.pairwise(series)
    ]
    flicker = np.array([retracted(series) for series in _screens(take)] or [(0, 1)]).sum(0)
    return {
        "retracted_percent": round(100 * float(flicker[0] / max(flicker[1], 1)), 2),
        "count": sum(map(len, partials.values())),
        "utterances_without": len(take.finals) - len(first),
        "first_partial": spread(first) if first else None,
        "cadence": spread(steps) if steps else None,
    }


def _screens(take: Take) -> list[list[str]]:
    """What each utterance's line said, partials and final, in order."""
    partials = take.partials()
    return [
        [message.text for _, message in partials.get(final.utterance, [])] + [final.text]
        for final in take.finals
    ]


def seam_errors(
    references: Sequence[str], finals: Sequence[str], clip_texts: Sequence[str]
) -> dict[str, Any]:
    """Words lost or added where finals meet, and which of these Whisper does without a cut, too."""
    wanted = [normalised(text) for text in references]
    live = Alignment.of(wanted, [normalised(text) for text in finals])
    clips = Alignment.of(wanted, [normalised(text) for text in clip_texts])
    slips = live.at_seams()
    return {
        "lost_or_added": len(live.slips),
        "seams": len(live.seams),
        "at_seams": len(slips),
        "also_offline": sum(clips.has(slip) for slip in slips),
        "slips": [live.context(slip) | {"also_offline": clips.has(slip)} for slip in slips],
    }


async def idle(args: argparse.Namespace) -> dict[str, Any]:
    """CPU time of a daemon that has nothing to do: without a client, and with silent ones."""
    async with daemon(args.model) as running:
        with measured_load(running.pid) as alone:
            await asyncio.sleep(IDLE_S)
        silence = np.zeros(IDLE_S * SAMPLE_RATE, np.float32)
        with measured_load(running.pid) as listening:
            takes = await asyncio.gather(
                *(
                    stream(running.url, silence, realtime=True, partials=True)
                    for _ in range(SILENT_CLIENTS)
                )
            )
    captions = sum(len(take.finals) + sum(map(len, take.partials().values())) for take in takes)
    return {
        "no_client": alone,
        "silent_clients": {"clients": SILENT_CLIENTS, **listening},
        "captions_of_silence": captions,
    }


Section = Callable[[argparse.Namespace], Awaitable[dict[str, Any]]]
SECTIONS: dict[str, Section] = {"wer": wer, "chapter": chapter, "idle": idle}


async def run(
    args: argparse.Namespace, sections: dict[str, Section], definitions: dict[str, str]
) -> None:
    """Each section asked for, written as soon as it is done."""
    for name in args.sections or sections:
        figures = await sections[name](args)
        known = json.loads(args.output.read_text()) if args.output.exists() else {}
        known["definitions"] = definitions
        known[name] = {"machine": machine(), "model": args.model, **figures}
        args.output.write_text(json.dumps(known, indent=1) + "\n")
        print(f"{name}: written to {args.output}", flush=True)


def options(
    parser: argparse.ArgumentParser,
    sections: dict[str, Section],
    results: Path,
    short: Sequence[str],
) -> argparse.Namespace:
    """What was asked for; the options `short` shorten a run, which then needs an --output of its own."""
    if sections:
        parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(sections))
    parser.add_argument("--model", default="base")
    parser.add_argument("--output", type=Path, default=results, help="default: %(default)s")
    args = parser.parse_args()
    unknown = sorted(set(args.sections if sections else ()) - sections.keys())
    if unknown:
        parser.error(f"no section {', '.join(unknown)}: choose from {', '.join(sections)}")
    if args.output == results and any(getattr(args, name) for name in short):
        parser.error(f"a shortened run is not for {results.name}: name another --output")
    return args


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_service")
    parser.add_argument("--minutes", type=float, help="of the chapter (default: all 19.3)")
    parser.add_argument("--files", type=int, help="of test-other (default: all 70)")
    args = options(parser, SECTIONS, RESULTS, ["minutes", "files"])
    asyncio.run(run(args, SECTIONS, DEFINITIONS))


if __name__ == "__main__":
    main()
