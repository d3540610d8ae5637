"""How many live sessions a daemon carries, and what ten times too many do to it.

    python -m tests.benchmarks.bench_load [--quick] [--output FILE]

One, two, four, eight … sessions at the pace of speech, each with a chapter of its own beginning, until
finals come more than two seconds late; then ten times the greatest number that kept up, for two minutes,
and silence until nothing waits. The machine must be quiet. Writes docs/load.json.
"""

import argparse
import asyncio
import json
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.demo import Running
from clients.stream import RefusedError
from streaming.protocol import SAMPLE_RATE, Final, Lag
from tests.benchmarks.bench_service import CHAPTER, daemon, machine, options, spread
from tests.benchmarks.bench_stream import Take, measured_load, stream
from tests.support.audio import recordings

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "load.json"
LATE_S = 2.0
MOST = 64
EXCESS = 10

DEFINITIONS = {
    "after_endpoint": "arrival of a final minus arrival of its utterance's speech end message",
    "partials_shed": "partials that gave way to a newer one or to a final, of all that were asked for",
    "refused": "sessions that the daemon answered with HTTP 503",
    "finals_lost": "utterances without a final in sessions that were admitted",
    "recovery_s": "from the last sample sent to the last final",
    "lag": "sessions that were told of it, and the most seconds that were told",
}


def clips(count: int, seconds: float) -> list[NDArray[np.float32]]:
    """So many stretches of a chapter with pauses between its sentences, each from another place on."""
    pause = np.zeros(SAMPLE_RATE * 7 // 10, np.float32)
    parts = [part for one in recordings(under=CHAPTER) for part in (one.audio(), pause)]
    audio = np.concatenate(parts)
    size = round(seconds * SAMPLE_RATE)
    step = len(audio) // count
    return [np.take(audio, np.arange(n * step, n * step + size), mode="wrap") for n in range(count)]


def health(running: Running) -> dict[str, Any]:
    """What /healthz says."""
    url = running.url.replace("ws://", "http://") + "/healthz"
    with urllib.request.urlopen(url, timeout=30) as answer:  # our own daemon
        found: dict[str, Any] = json.loads(answer.read())
    return found


async def sessions(running: Running, audios: Sequence[NDArray[np.float32]]) -> dict[str, Any]:
    """All at once, at the pace of speech; what became of them."""
    before = await asyncio.to_thread(health, running)
    with measured_load(running.pid) as used:
        results = await asyncio.gather(
            *(stream(running.url, audio, realtime=True, partials=True) for audio in audios),
            return_exceptions=True,
        )
    ended = time.monotonic()
    after = await asyncio.to_thread(health, running)
    served = [one for one in results if isinstance(one, Take)]
    refused = [one for one in results if isinstance(one, RefusedError)]
    for one in results:
        if isinstance(one, BaseException) and not isinstance(one, RefusedError):
            raise one
    delays = [delay for take in served for delay in final_delays(take)]
    lags = [[lag.seconds for _, lag in take.all(Lag)] for take in served]
    asked = {key: after[key] - before[key] for key in ("partials", "superseded")}
    shed = asked["superseded"] / max(sum(asked.values()), 1)
    return {
        "sessions": len(audios),
        "refused": len(refused),
        "after_endpoint": spread(delays) if delays else None,
        "partials": asked["partials"],
        "partials_shed_percent": round(100 * shed, 1),
        "finals": sum(len(take.finals) for take in served),
        "finals_lost": sum(len(take.ends_of_speech()) - len(take.finals) for take in served),
        "recovery_s": round(max(ended - take.sent[-1] for take in served), 2) if served else None,
        "lag": {
            "sessions": sum(map(bool, lags)),
            "most_s": max(map(max, filter(None, lags)), default=0),
        },
        "cpu_percent_of_machine": used["cpu_percent_of_machine"],
    }


def final_delays(take: Take) -> list[float]:
    """Seconds from each end of speech to its final."""
    told = take.ends_of_speech()
    return [when - told[final.utterance] for when, final in take.all(Final)]


async def run(args: argparse.Namespace) -> None:
    """Climb until finals are late, then pour."""
    seconds, flood = (15.0, 20.0) if args.quick else (60.0, 120.0)
    steps: list[dict[str, Any]] = []
    count, good = 1, 1
    while count <= (2 if args.quick else MOST):
        async with daemon(args.model) as running:
            steps.append(await sessions(running, clips(count, seconds)))
        print(json.dumps(steps[-1]), flush=True)
        late = steps[-1]["after_endpoint"]
        if steps[-1]["refused"] or late is None or late["p90_s"] > LATE_S:
            break
        good, count = count, 2 * count
    async with daemon(args.model) as running:
        excess = await sessions(running, clips(min(EXCESS * good, MOST * 2), flood))
    print(json.dumps(excess), flush=True)
    result = {
        "definitions": DEFINITIONS,
        "machine": machine(),
        "model": args.model,
        "seconds": seconds,
        "steps": steps,
        "most_that_kept_up": good,
        "shedding_began_at": next(
            (step["sessions"] for step in steps if step["partials_shed_percent"] > 10), None
        ),
        "excess": {"seconds": flood, **excess},
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    """Read the options; a quick run asks for an --output of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_load")
    parser.add_argument("--quick", action="store_true", help="two sessions of 15 s, to see it work")
    asyncio.run(run(options(parser, {}, RESULTS, ["quick"])))


if __name__ == "__main__":
    main()
