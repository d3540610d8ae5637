"""Who takes part in a benchmark: what was asked for, and the contenders made of it when wanted.

Times nothing itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from model.bench.clips import BenchError, Clip
from model.bench.contenders import (
    Captiond,
    Encoding,
    EngineUnderTest,
    Truth,
    again,
    greedy,
    simulated,
    truth_of,
)
from model.bench.other_engines import (
    Absent,
    FasterWhisper,
    Transformers,
    assistant_for,
    ctranslate2_directory,
)
from model.bench.paired_runs import Contender, Track, run_paired
from model.bench.subprocess_engine import SubprocessEngine
from model.checkpoints.load import Checkpoint, ModelError
from model.drafting.drafter_files import load_drafter
from model.engine.build import check_int8
from model.engine.engine import Engine
from model.engine.requests import check_languages
from model.engine.warm_up import Measure, capture
from model.whisper.measure import median_seconds
from model.whisper.quantised import Precision

ENGINES = (
    "greedy",
    "oracle",
    "drafter",
    "again",
    "int8",
    "int8-oracle",
    "int8-drafter",
    "transformers",
    "assisted",
    "faster-whisper-float32",
    "faster-whisper-int8",
)


IN_PREFILL = ("again",)
"""Those whose prefill verifies a text, so that tokens a later pass say little."""

OTHER_TARGET = ("int8", "int8-oracle", "int8-drafter")
"""Captiond's engines whose encoder is not the one that `Field.encoding` times."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for. chance: of each token of the pretended drafter being right.

    precision: of every engine of captiond's but OTHER_TARGET, whose names say theirs.
    """

    language: str
    device: str
    engines: tuple[str, ...]
    batches: tuple[int, ...]
    repeats: int
    warm_ups: int
    chance: float
    block: int
    drafter: Path | None
    assistant: str | None
    precision: Precision = "float32"


@dataclass(eq=False)
class Benchmark:
    """Everything that a section may run, made when it is first wanted.

    scratch: a directory for joined weights. measure: times the passes that a paced engine chooses by. Raises BenchError for a language that the model lacks.
    """

    checkpoint: Checkpoint
    clips: list[Clip]
    plan: Plan
    scratch: Path
    tell: Callable[[str], None]
    measure: Measure = median_seconds
    _contenders: dict[str, Contender | Absent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checkpoint = self.checkpoint
        try:
            check_languages({self.plan.language}, checkpoint.tokens.codes, checkpoint.name)
        except ValueError as error:
            raise BenchError(str(error)) from None

    @cached_property
    def engine_under_test(self) -> EngineUnderTest:
        """The engine that has no network of its own."""
        return self._plain_engine(self.plan.precision)

    @cached_property
    def int8_engine_under_test(self) -> EngineUnderTest:
        """The same with the int8 target. Raises Absent where that cannot run."""
        self._check_other_target()
        return self._plain_engine("int8")

    def _check_other_target(self) -> None:
        if self.plan.precision == "int8":
            raise Absent("all of captiond's engines are int8 in this run (--precision)")
        try:
            check_int8(self.plan.device)
        except ModelError as reason:
            raise Absent(str(reason)) from None

    def _plain_engine(self, precision: Precision) -> EngineUnderTest:
        slots, plan = max(self.plan.batches), self.plan
        return EngineUnderTest.plain(
            self.checkpoint,
            device=plan.device,
            slots=slots,
            block=plan.block,
            precision=precision,
        )

    @cached_property
    def truth(self) -> Truth:
        """What greedy decoding makes of each clip."""
        self.tell("reading every clip once, for the truth")
        return truth_of(greedy(self.engine_under_test, self.plan.language), self.clips)

    def drafted_engine(
        self, *, block: int, adaptive: bool, precision: Precision | None = None
    ) -> EngineUnderTest:
        """An engine with the trained drafter; paced: it chooses its blocks as a daemon's does.

        precision: of its target; by default the plan's. Raises Absent where no drafter was given,
        model.checkpoints.load.ModelError where it cannot be read.
        """
        plan, checkpoint = self.plan, self.checkpoint
        if plan.drafter is None:
            raise Absent("no trained drafter was given (--drafter)")
        engine = Engine(
            checkpoint,
            device=plan.device,
            slots=max(plan.batches),
            drafter=load_drafter(plan.drafter, checkpoint),
            block=block,
            precision=precision or plan.precision,
        )
        if adaptive:
            engine.warm_up(self.measure)
        else:
            capture(engine.runner, engine.slots)
        return EngineUnderTest.of(engine)

    def contender(self, name: str, batch: int) -> Contender:
        """One of ENGINES, the same object for every batch size. Raises Absent."""
        if name == "assisted" and batch > 1:
            raise Absent("transformers assists one utterance at a time")
        if name not in self._contenders:
            self.tell(f"loading {name}")
            try:
                self._contenders[name] = self._make(name)
            except Absent as reason:
                self._contenders[name] = reason
        made = self._contenders[name]
        if isinstance(made, Absent):
            raise made
        return made

    def _make(self, name: str) -> Contender:
        plan, checkpoint, language = self.plan, self.checkpoint, self.plan.language

        def transformers(assistant: Checkpoint | None = None) -> Contender:
            return Transformers(name, checkpoint, language, device=plan.device, assistant=assistant)

        def faster_whisper() -> Contender:
            compute = name.removeprefix("faster-whisper-")
            threads = torch.get_num_threads()
            make = partial(
                FasterWhisper, name, self.ctranslate2, compute, language, plan.device, threads
            )
            return SubprocessEngine(name, make)

        def drafted(precision: Precision | None = None) -> Contender:
            engine_under_test = self.drafted_engine(
                block=plan.block, adaptive=True, precision=precision
            )
            return Captiond(name, engine_under_test, language)

        def int8_drafted() -> Contender:
            self._check_other_target()
            return drafted("int8")

        def int8_oracle() -> Contender:
            engine_under_test = self.int8_engine_under_test
            truth = truth_of(greedy(engine_under_test, language), self.clips)
            return simulated(engine_under_test, language, truth, plan.chance, plan.block, name=name)

        makers: dict[str, Callable[[], Contender]] = {
            "greedy": lambda: greedy(self.engine_under_test, language),
            "oracle": lambda: simulated(
                self.engine_under_test, language, self.truth, plan.chance, plan.block
            ),
            "drafter": drafted,
            "again": lambda: again(self.engine_under_test, language, self.truth),
            "int8": lambda: greedy(self.int8_engine_under_test, language, name=name),
            "int8-oracle": int8_oracle,
            "int8-drafter": int8_drafted,
            "transformers": transformers,
            "assisted": lambda: transformers(assistant_for(checkpoint, plan.assistant)),
            "faster-whisper-float32": faster_whisper,
            "faster-whisper-int8": faster_whisper,
        }
        return makers[name]()

    @cached_property
    def ctranslate2(self) -> Path:
        """The weights as faster-whisper reads them. Raises Absent."""
        return ctranslate2_directory(self.checkpoint, self.scratch)

    @cached_property
    def encoding(self) -> Encoding:
        """Captiond's encoder alone."""
        return Encoding(self.engine_under_test.engine)

    def run_paired(
        self, contenders: Sequence[Contender], units: Sequence[list[Clip]]
    ) -> list[Track]:
        """See `model.bench.paired_runs.race`."""
        plan = self.plan
        return run_paired(
            contenders, units, repeats=plan.repeats, warm_ups=plan.warm_ups, tell=self.tell
        )


def about(run: Benchmark) -> dict[str, Any]:
    """What every section's figures rest on."""
    plan = run.plan
    return {
        "clips": len(run.clips),
        "audio_s": round(sum(clip.seconds for clip in run.clips), 1),
        "language": plan.language,
        "repeats": plan.repeats,
        "warm_ups": plan.warm_ups,
        "oracle": {"block": plan.block, "chance_of_each_token": round(plan.chance, 4)},
        "drafter": None if plan.drafter is None else plan.drafter.name,
        "precision": plan.precision,
    }
