"""A benchmark's settings, and its contenders, which are built on demand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from model.bench.clips import BenchError, Clip
from model.bench.contenders import (
    Captiond,
    EncoderOnly,
    EngineUnderTest,
    ReferenceTokens,
    greedy,
    reference_tokens,
    reuse,
    simulated,
)
from model.bench.other_engines import (
    FasterWhisper,
    Transformers,
    Unavailable,
    assistant_for,
    ctranslate2_directory,
)
from model.bench.paired_runs import Contender, Measurement, run_paired
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


DRAFTED_IN_PREFILL = ("again",)
"""Engines whose prefill verifies a text: tokens for each later pass would mislead."""

OTHER_TARGET = ("int8", "int8-oracle", "int8-drafter")
"""captiond's engines with another encoder than the one that `Benchmark.encoder_only` times."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A benchmark's settings.

    chance: probability that a token of the simulated drafter is right. block: its candidates in a round.
    precision: of captiond's engines but OTHER_TARGET, which are int8.
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
    """Engines and contenders of all sections, each built at its first use.

    scratch: a directory for joined weights. measure: times the passes that adaptive engines choose by. Raises
    BenchError for a language that the model lacks.
    """

    checkpoint: Checkpoint
    clips: list[Clip]
    plan: Plan
    scratch: Path
    tell: Callable[[str], None]
    measure: Measure = median_seconds
    _contenders: dict[str, Contender | Unavailable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checkpoint = self.checkpoint
        try:
            check_languages({self.plan.language}, checkpoint.tokens.codes, checkpoint.name)
        except ValueError as error:
            raise BenchError(str(error)) from None

    @cached_property
    def engine_under_test(self) -> EngineUnderTest:
        """The engine without a drafter."""
        return self._plain_engine(self.plan.precision)

    @cached_property
    def int8_engine_under_test(self) -> EngineUnderTest:
        """The engine without a drafter, with the int8 target. Raises Unavailable."""
        self._check_other_target()
        return self._plain_engine("int8")

    def _check_other_target(self) -> None:
        if self.plan.precision == "int8":
            raise Unavailable("all of captiond's engines are int8 in this run (--precision)")
        try:
            check_int8(self.plan.device)
        except ModelError as reason:
            raise Unavailable(str(reason)) from None

    def _plain_engine(self, precision: Precision) -> EngineUnderTest:
        slots, plan = max(self.plan.batches), self.plan
        return EngineUnderTest.plain(
            self.checkpoint, device=plan.device, slots=slots, block=plan.block, precision=precision
        )

    @cached_property
    def reference(self) -> ReferenceTokens:
        """Greedy decoding's tokens of each clip."""
        self.tell("decoding every clip once, for the reference tokens")
        return reference_tokens(greedy(self.engine_under_test, self.plan.language), self.clips)

    def drafted_engine(
        self, *, block: int, adaptive: bool, precision: Precision | None = None
    ) -> EngineUnderTest:
        """An engine with the trained drafter; adaptive: it chooses its draft lengths as a daemon's does.

        precision: of its target; by default the plan's. Raises Unavailable without a drafter file,
        ModelError for one that cannot be read.
        """
        plan, checkpoint = self.plan, self.checkpoint
        if plan.drafter is None:
            raise Unavailable("no trained drafter was given (--drafter)")
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
        return EngineUnderTest(engine, {})

    def contender(self, name: str, batch: int) -> Contender:
        """One of ENGINES; the same object for every batch size. Raises Unavailable."""
        if name == "assisted" and batch > 1:
            raise Unavailable("transformers assists one utterance at a time")
        if name not in self._contenders:
            self.tell(f"loading {name}")
            try:
                self._contenders[name] = self._make(name)
            except Unavailable as reason:
                self._contenders[name] = reason
        contender = self._contenders[name]
        if isinstance(contender, Unavailable):
            raise contender
        return contender

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
            reference = reference_tokens(greedy(engine_under_test, language), self.clips)
            return simulated(
                engine_under_test, language, reference, plan.chance, plan.block, name=name
            )

        makers: dict[str, Callable[[], Contender]] = {
            "greedy": lambda: greedy(self.engine_under_test, language),
            "oracle": lambda: simulated(
                self.engine_under_test, language, self.reference, plan.chance, plan.block
            ),
            "drafter": drafted,
            "again": lambda: reuse(self.engine_under_test, language, self.reference),
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
        """The directory of the weights for faster-whisper. Raises Unavailable."""
        return ctranslate2_directory(self.checkpoint, self.scratch)

    @cached_property
    def encoder_only(self) -> EncoderOnly:
        """Captiond's encoder alone."""
        return EncoderOnly(self.engine_under_test.engine)

    def run_paired(
        self, contenders: Sequence[Contender], units: Sequence[list[Clip]]
    ) -> list[Measurement]:
        """See `model.bench.paired_runs.run_paired`."""
        plan = self.plan
        return run_paired(
            contenders, units, repeats=plan.repeats, warm_ups=plan.warm_ups, tell=self.tell
        )


def conditions(run: Benchmark) -> dict[str, Any]:
    """The settings of a run, for its report."""
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
