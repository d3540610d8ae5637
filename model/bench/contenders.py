"""captiond's own contenders: one engine, drafted for in different ways.

Plain greedy decoding, a pretended drafter, reuse of its own text and a trained drafter are the same
machine; all but the last share one engine and its weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from model.bench.clips import BenchError, Clip
from model.bench.oracle import Simulated
from model.bench.paired_runs import Transcription
from model.checkpoints.load import Checkpoint
from model.drafting.interface import Proposer
from model.drafting.previous_text import PreviousText
from model.engine.engine import Engine
from model.engine.requests import Request, RequestOutput
from model.engine.warm_up import capture
from model.whisper.mel import LogMel
from model.whisper.quantised import Precision

Truth = Mapping[Clip, tuple[int, ...]]  # what greedy decoding, or sampling, makes of each clip


@dataclass(frozen=True, slots=True, eq=False)
class EngineUnderTest:
    """An engine whose requests are drafted for as the contender of the moment says."""

    engine: Engine
    proposers: dict[Request, Proposer]

    @classmethod
    def plain(
        cls,
        checkpoint: Checkpoint,
        *,
        device: str,
        slots: int,
        block: int,
        static: bool | None = None,
        precision: Precision = "float32",
    ) -> "EngineUnderTest":
        """An engine without a network of its own; arguments as for `Engine`."""
        proposers: dict[Request, Proposer] = {}
        engine = Engine(
            checkpoint,
            device=device,
            slots=slots,
            proposer=proposers.get,
            block=block,
            static=static,
            precision=precision,
        )
        capture(engine.runner, engine.slots)  # nothing is captured while a clock runs
        return cls(engine, proposers)

    @classmethod
    def of(cls, engine: Engine) -> "EngineUnderTest":
        """An engine that proposes by itself."""
        return cls(engine, {})


def _nothing(_clip: Clip) -> Proposer | None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Captiond:
    """One way of drafting, as `model.bench.paired_runs.Contender`."""

    name: str
    engine_under_test: EngineUnderTest
    language: str
    propose: Callable[[Clip], Proposer | None] = _nothing
    temperature: float = 0.0

    def read(self, clips: Sequence[Clip]) -> list[Transcription]:
        """All clips at once; the engine has a slot for each. Raises BenchError."""
        eot = self.engine_under_test.engine.tokens.eot
        return [_transcription(hypothesis, eot) for hypothesis in self._decode(clips)]

    def _decode(self, clips: Sequence[Clip]) -> list[RequestOutput]:
        requests = [self._request(clip) for clip in clips]
        for request, clip in zip(requests, clips, strict=True):
            proposer = self.propose(clip)
            if proposer is not None:
                self.engine_under_test.proposers[request] = proposer
        try:
            return self.engine_under_test.engine.transcribe(requests)
        except ValueError as error:
            names = ", ".join(clip.name for clip in clips)
            raise BenchError(f"{self.name} cannot decode one of {names}: {error}") from None
        finally:
            self.engine_under_test.proposers.clear()

    def _request(self, clip: Clip) -> Request:
        # Any seed will do that is the same in every run and not in every clip.
        seed = len(clip.audio)
        return Request(clip.audio, language=self.language, temperature=self.temperature, seed=seed)


def _transcription(hypothesis: RequestOutput, eot: int) -> Transcription:
    return Transcription(
        text=hypothesis.text,
        tokens=hypothesis.tokens,
        text_tokens=sum(token < eot for token in hypothesis.tokens),
        exact=True,
        rounds=hypothesis.rounds,
        proposed=hypothesis.proposed,
        accepted=hypothesis.accepted,
    )


def greedy(
    engine_under_test: EngineUnderTest,
    language: str,
    temperature: float = 0.0,
    name: str = "greedy",
) -> Captiond:
    """Plain decoding: k = 0."""
    return Captiond(name, engine_under_test, language, temperature=temperature)


def simulated(
    engine_under_test: EngineUnderTest,
    language: str,
    truth: Truth,
    chance: float,
    block: int,
    temperature: float = 0.0,
    name: str = "oracle",
) -> Captiond:
    """A pretended drafter of known quality: `chance` for each token, full blocks of `block`.

    Drafting itself costs nothing here: what a network's pass would add is left out.
    """

    def propose(clip: Clip) -> Proposer:
        return Simulated(truth[clip], chance, block, seed=len(clip.audio))

    return Captiond(name, engine_under_test, language, propose, temperature)


def again(engine_under_test: EngineUnderTest, language: str, truth: Truth) -> Captiond:
    """Reuse of the clip's own transcript: what a final costs whose last partial was right."""
    return Captiond("again", engine_under_test, language, lambda clip: PreviousText(truth[clip]))


def truth_of(contender: Captiond, clips: Sequence[Clip]) -> dict[Clip, tuple[int, ...]]:
    """The tokens of every clip, decoded as many at a time as there are slots."""
    slots, truth = contender.engine_under_test.engine.slots, dict[Clip, tuple[int, ...]]()
    for at in range(0, len(clips), slots):
        unit = clips[at : at + slots]
        for clip, transcription in zip(unit, contender.read(unit), strict=True):
            truth[clip] = transcription.tokens
    return truth


class Encoding:
    """What every way of decoding begins with, as a contender of its own: it reads nothing.

    Log-mel, encoder and the target's cross-attention keys and values. It takes part in a race so
    that it is timed in the same minutes as those whose encoding is to be told apart.
    """

    name = "encoder"

    def __init__(self, engine: Engine) -> None:
        runner = engine.runner
        self._window = runner.window
        self._whisper = runner.whisper
        self._cache = runner.state.cache
        bins = runner.whisper.config.num_mel_bins
        self._front_end = LogMel(bins).to(self._cache.cross_keys.device)

    @torch.inference_mode()
    def read(self, clips: Sequence[Clip]) -> list[Transcription]:
        """Encode into the engine's first slots: it must be idle."""
        mel = self._front_end([clip.audio for clip in clips], self._window)
        states = self._whisper.encoder(mel.to(self._whisper.decoder.positions.dtype))
        self._whisper.decoder.write_cross(states, self._cache.rows(0, len(clips)))
        return []
