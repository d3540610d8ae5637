"""captiond's contenders: greedy decoding, a simulated drafter, reuse of a transcript, a trained drafter.

All but the last share one engine and its weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from model.bench.clips import BenchError, Clip
from model.bench.oracle import SimulatedDrafter
from model.bench.paired_runs import Transcription
from model.checkpoints.load import Checkpoint
from model.drafting.interface import Proposer
from model.drafting.previous_text import PreviousText
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request, RequestOutput
from model.engine.warm_up import capture
from model.whisper.mel import LogMel
from model.whisper.quantised import Precision

ReferenceTokens = Mapping[Clip, tuple[int, ...]]  # of greedy decoding, or sampling


@dataclass(frozen=True, slots=True, eq=False)
class EngineUnderTest:
    """An engine, and the proposers of its requests, which the active contender sets."""

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
        """An engine without a drafter; arguments as for `Engine`."""
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
        capture(engine.runner, engine.slots)  # no capture is timed
        return cls(engine, proposers)


@dataclass(frozen=True, slots=True, eq=False)
class Captiond:
    """A contender: an engine with one way of drafting. proposer: None for the engine's own."""

    name: str
    engine_under_test: EngineUnderTest
    language: str
    proposer: Callable[[Clip], Proposer] | None = None
    temperature: float = 0.0

    def transcribe(self, clips: Sequence[Clip]) -> list[Transcription]:
        """Decode all clips as one batch; the engine has a slot for each. Raises BenchError."""
        eot = self.engine_under_test.engine.tokens.eot
        return [_transcription(hypothesis, eot) for hypothesis in self._decode(clips)]

    def _decode(self, clips: Sequence[Clip]) -> list[RequestOutput]:
        requests = [self._request(clip) for clip in clips]
        if self.proposer is not None:
            for request, clip in zip(requests, clips, strict=True):
                self.engine_under_test.proposers[request] = self.proposer(clip)
        try:
            return transcribe(self.engine_under_test.engine, requests)
        except ValueError as error:
            names = ", ".join(clip.name for clip in clips)
            raise BenchError(f"{self.name} cannot decode one of {names}: {error}") from None
        finally:
            self.engine_under_test.proposers.clear()

    def _request(self, clip: Clip) -> Request:
        # Seeds are the same in every run, and differ between clips.
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
    """Decoding without drafts; above temperature 0 it samples."""
    return Captiond(name, engine_under_test, language, temperature=temperature)


def simulated(
    engine_under_test: EngineUnderTest,
    language: str,
    reference: ReferenceTokens,
    chance: float,
    block: int,
    temperature: float = 0.0,
    name: str = "oracle",
) -> Captiond:
    """A simulated drafter, see `SimulatedDrafter`; its proposals take no time."""

    def proposer(clip: Clip) -> Proposer:
        return SimulatedDrafter(reference[clip], chance, block, seed=len(clip.audio))

    return Captiond(name, engine_under_test, language, proposer, temperature)


def reuse(
    engine_under_test: EngineUnderTest, language: str, reference: ReferenceTokens
) -> Captiond:
    """The clip's own transcript as draft: the cost of a final after a partial with the same text."""
    return Captiond(
        "again", engine_under_test, language, lambda clip: PreviousText(reference[clip])
    )


def reference_tokens(contender: Captiond, clips: Sequence[Clip]) -> dict[Clip, tuple[int, ...]]:
    """The contender's tokens of every clip, decoded in batches of all slots."""
    slots, reference = contender.engine_under_test.engine.slots, dict[Clip, tuple[int, ...]]()
    for at in range(0, len(clips), slots):
        unit = clips[at : at + slots]
        for clip, transcription in zip(unit, contender.transcribe(unit), strict=True):
            reference[clip] = transcription.tokens
    return reference


class EncoderOnly:
    """Log-mel, encoder and cross-attention keys and values, as a contender without transcripts.

    It runs among the others, so that its time is measured in the same minutes as theirs.
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
    def transcribe(self, clips: Sequence[Clip]) -> list[Transcription]:
        """Encode into the engine's first slots: it must be idle."""
        mel = self._front_end([clip.audio for clip in clips], self._window)
        states = self._whisper.encoder(mel.to(self._whisper.decoder.positions.dtype))
        self._whisper.decoder.write_cross(states, self._cache.rows(0, len(clips)))
        return []
