"""The frozen target as teacher: its greedy transcripts, encoder states and features.

It decodes by the engine's phases, without proposals; a recorder in the drafter's place gets the states and
features that a drafter gets when it serves (Whisper-Flash 3.3, A.3; EAGLE-ASR III-C).
"""

from collections import abc
from dataclasses import dataclass
from itertools import count as count_from

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoints.load import Checkpoint, ModelError
from model.drafting.interface import Choose
from model.drafting.parallel import audio_states
from model.engine.phases import EncodeInputs, Phases, PrefillInputs, VerifyInputs
from model.engine.requests import Request, check_languages
from model.engine.round_output import unpack
from model.engine.sequence import Sequence
from model.whisper.mel import LogMel
from model.whisper.network import Whisper
from model.whisper.slots import Slots

_KV_STEP = 64


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """One passage as the target decoded it.

    tokens: [n] int64, prompt and transcript, the end of transcript included. prompt_len: tokens of the
    prompt. states: float16 [audio_len, width], the encoder's, over `audio_states`. features: float16
    [n - 1, aux layers * width], the outputs of the auxiliary layers at every token but the last. finished:
    whether the end of transcript came before the length limit.
    """

    tokens: Tensor
    prompt_len: int
    states: Tensor
    features: Tensor
    finished: bool


class _Recorder:
    """A `Drafter` that records its inputs and proposes nothing."""

    block = 0

    def __init__(self, aux_layers: tuple[int, ...]) -> None:
        self.aux_layers = aux_layers
        self.states: list[Tensor] = []
        self.features: list[Tensor] = []

    def encode(self, states: Tensor, first: int) -> None:  # noqa: ARG002  (every row, always)
        self.states.append(states)

    def remember(
        self,
        features: Tensor,
        tokens: Tensor,  # noqa: ARG002  (the sequences keep them)
        positions: Tensor,  # noqa: ARG002  (they are consecutive)
        first: int,  # noqa: ARG002  (every row, always)
    ) -> None:
        self.features.append(features.half().cpu())

    def draft(
        self, slots: Slots, rows: int, count: int, kv_len: int, encoder_len: int, choose: Choose
    ) -> None:
        """Propose nothing: with a block of 0 it is never called."""


def check_language(checkpoint: Checkpoint, language: str) -> None:
    """Raise ModelError for a language that the target does not know."""
    try:
        check_languages({language}, checkpoint.tokens.codes, checkpoint.name)
    except ValueError as error:
        raise ModelError(str(error)) from None


class Teacher:
    """The frozen target over a batch of passages, at most `rows` of them."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: torch.device,
        rows: int,
        aux_layers: tuple[int, ...],
    ) -> None:
        config = checkpoint.config
        self.rows = rows
        on_cpu = device.type == "cpu"
        dtype = torch.float32 if on_cpu else torch.float16
        self._whisper = Whisper.from_weights(
            config, checkpoint.weights, device, dtype, packed=on_cpu
        )
        self._table = checkpoint.tokens
        self._slots = Slots.allocate(self._whisper, rows, 0)
        self._mel = LogMel(config.num_mel_bins).to(device)
        self._aux_layers = aux_layers
        self._device = device

    @torch.inference_mode()
    def trajectories(
        self, audios: abc.Sequence[NDArray[np.float32]], language: str
    ) -> list[Trajectory]:
        """Decode audios [samples] of up to 30 s, at most as many as there are rows."""
        recorder = _Recorder(self._aux_layers)
        phases = Phases(self._whisper, self._table, self._slots, recorder)
        window = int(self._whisper.config.max_source_positions)
        count = len(audios)
        mel = self._mel(audios, window).to(self._slots.cache.self_keys.dtype)
        phases.encode(EncodeInputs(mel, first=0, audio_len=window))
        nothing = [0] * count
        self._slots.reset(0, nothing, nothing, [0.0] * count)
        sequences = [Sequence(Request(audio), language) for audio in audios]
        for sequence in sequences:
            sequence.set_prompt(self._table, int(self._whisper.config.max_target_positions))
        self._decode(phases, sequences, window)
        features = torch.cat(recorder.features, 1)
        return [
            _trajectory(sequence, features[row], recorder.states[0][row], self._table.eot)
            for row, sequence in enumerate(sequences)
        ]

    def _decode(self, phases: Phases, sequences: list[Sequence], window: int) -> None:
        """Decode until every sequence has ended; rows of ended sequences idle."""
        count, prompt_len = len(sequences), len(sequences[0].prompt_tokens)
        none = self._integers([0] * count)
        nothing = none[:, None][:, :0]
        prompts = PrefillInputs(
            tokens=self._integers([sequence.prompt_tokens for sequence in sequences]),
            prompt_lens=none + prompt_len,
            starts=none + sequences[0].prompt_tokens.index(self._table.sot),
            candidates=nothing,
            counts=none,
            first=0,
            kv_len=_kv_len(prompt_len),
            encoder_len=window,
            sampled=False,
        )
        outputs = unpack(phases.prefill(prompts), count, prefill=True)
        for longest in count_from(prompt_len + 1):
            for sequence, output in zip(sequences, outputs, strict=True):
                if not sequence.finished(self._table.eot):
                    sequence.tokens += output.tokens
            if all(sequence.finished(self._table.eot) for sequence in sequences):
                return
            anchors = VerifyInputs(
                nothing, none, none > 0, _kv_len(longest), encoder_len=window, sampled=False
            )
            outputs = unpack(phases.verify(anchors), count, prefill=False)

    def _integers(self, numbers: abc.Sequence[int] | abc.Sequence[abc.Sequence[int]]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)


def _kv_len(positions: int) -> int:
    """A bound of attention to `positions` cached positions and the next one."""
    return _KV_STEP * (1 + positions // _KV_STEP)


def _trajectory(sequence: Sequence, features: Tensor, states: Tensor, eot: int) -> Trajectory:
    tokens = sequence.prompt_tokens + sequence.tokens
    audio_len = audio_states(len(sequence.request.audio), len(states))
    return Trajectory(
        tokens=torch.tensor(tokens),
        prompt_len=len(sequence.prompt_tokens),
        states=states[:audio_len].half().cpu(),
        features=features[: len(tokens) - 1].clone(),
        finished=sequence.tokens[-1] == eot,
    )
