"""People talking behind a speaker: when his utterance ends, and whose words its final has.

    python -m tests.benchmarks.bench_babble [--limit N] [--model NAME] [--output FILE]

Sentences amid four to eight other voices, two seconds before and five behind, 5 to 20 dB below the speaker.
Writes docs/babble.json. One thread.
"""

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from daemon.recognition import request_builder
from model.bench.word_errors import normalised
from model.checkpoints.load import load
from model.engine.engine import Engine
from model.engine.offline import transcribe
from streaming.protocol import SAMPLE_RATE, Final, Speech, Start
from streaming.session import Output, Session
from streaming.silero import Silero
from streaming.utterance import Decode
from streaming.vad import VoiceActivity, detector
from tests.benchmarks.bench_service import machine
from tests.benchmarks.bench_turns import aligned
from tests.support.babble import Amid, amid
from tests.support.streams import feed

RESULTS = Path(__file__).resolve().parent.parent.parent / "docs" / "babble.json"
LEVELS = (None, 20, 15, 10, 5)  # dB
IN_TIME = 1.0  # seconds
STEP = SAMPLE_RATE // 50  # samples sent at a time

DEFINITIONS = {
    "in_time_percent": "endpoints at most 1 s of audio behind the speaker's last sound",
    "late_s": "endpoint after the speaker's last sound, median and 90 %; the stream ends 5 s behind it",
    "words": "of the speakers",
    "inserted, deleted": "words of the finals of utterances that share audio with the speaker, aligned with "
    "his sentence",
    "others": "words of all other finals, and how many finals",
    "everyone, foreground": "without and with streaming/foreground.py",
}


@dataclass(slots=True)
class Score:
    """What became of the sentences at one level."""

    late: list[float] = field(default_factory=list)
    words: int = 0
    inserted: int = 0
    deleted: int = 0
    substituted: int = 0
    others: int = 0
    finals_of_others: int = 0

    def add(self, one: Amid, said: list[Final], ends: dict[int, int]) -> None:
        """One sentence's; ends: utterance → samples that had come when it ended."""
        start, stop = one.start / SAMPLE_RATE, one.stop / SAMPLE_RATE
        his = [final for final in said if final.start < stop and final.end > start]
        last = ends[his[-1].utterance] if his else len(one.audio)
        self.late.append(last / SAMPLE_RATE - stop)
        wanted = normalised(one.sentence.text).split()
        words = normalised(" ".join(final.text for final in his)).split()
        deleted, _, inserted, substituted = aligned([wanted], words)
        self.words += len(wanted)
        self.deleted += sum(deleted)
        self.inserted += inserted
        self.substituted += substituted
        self.finals_of_others += len(said) - len(his)
        self.others += sum(len(final.text.split()) for final in said if final not in his)

    def figures(self) -> dict[str, Any]:
        """For the file."""
        late = sorted(self.late)
        return {
            "sentences": len(late),
            "in_time_percent": round(100 * sum(s <= IN_TIME for s in late) / len(late), 1),
            "late_s": [round(late[len(late) * share // 10], 2) for share in (5, 9)],
            "words": self.words,
            "inserted": self.inserted,
            "deleted": self.deleted,
            "substituted": self.substituted,
            "others": [self.others, self.finals_of_others],
        }


def hear(engine: Engine, one: Amid, vad: VoiceActivity) -> tuple[list[Final], dict[int, int]]:
    """The finals of a session, and when each utterance ended, in samples that had come."""
    start = Start(encoding="f32le", language="en", partials=False)
    stream = Session(start, vad=vad)
    said: list[Final] = []
    ends: dict[int, int] = {}

    def carry_out(outputs: list[Output], position: int) -> None:
        for output in outputs:
            if isinstance(output, Final):
                said.append(output)
            elif isinstance(output, Speech) and output.event == "end":
                ends[output.utterance] = position
            elif isinstance(output, Decode) and output.final:
                (result,) = transcribe(engine, [request_builder.request(start, output)])
                hypothesis = request_builder.hypothesis(result, lead=output.lead)
                carry_out(stream.accept(output, hypothesis, 0.0), position)

    for at in range(0, len(one.audio), STEP):
        block = one.audio[at : at + STEP]
        carry_out(feed(stream, block.astype("<f4").tobytes()), at + len(block))
    carry_out(stream.stop(), len(one.audio))
    return said, ends


def main() -> None:
    """Hear all levels with both detectors, and write what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_babble")
    parser.add_argument("--limit", type=int, default=24, help="sentences; default: %(default)s")
    parser.add_argument("--model", default="base", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=RESULTS, help="default: %(default)s")
    args = parser.parse_args()
    torch.set_num_threads(1)
    engine = Engine(load(args.model), slots=1)
    results: dict[str, Any] = {"definitions": DEFINITIONS, "machine": machine()}
    results |= {"model": args.model, "everyone": {}, "foreground": {}}
    for decibels in LEVELS:
        name = "alone" if decibels is None else f"{decibels} dB"
        found = amid(args.limit, decibels)
        for way in ("everyone", "foreground"):
            score = Score()
            for one in found:
                vad = Silero() if way == "everyone" else detector("silero", 0)
                score.add(one, *hear(engine, one, vad))
            results[way][name] = score.figures()
            print(name, way, json.dumps(results[way][name]), flush=True)
        args.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
