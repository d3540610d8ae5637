"""What the frozen target says of audio, with all that a drafter is to learn from.

Greedy decoding by the engine's own phases, without proposals, while a recorder stands where the
drafter would: so that states and features are those that a drafter sees when it serves
(Whisper-Flash 3.3, A.3; EAGLE-ASR III-C).
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

    tokens: [n] int64, the opening and what was emitted, the end of transcript included.
    opening: how many of them stand before the transcript. states: float16 [spoken, width], of the
    encoder, over `audio_states`. features: float16 [n - 1, aux layers * width], the residual streams
    behind the tapped blocks at every token but the last. finished: whether it ended by itself.
    """

    tokens: Tensor
    prompt_len: int
    states: Tensor
    features: Tensor
    finished: bool


class _Recorder:
    """Stands where a drafter would, and keeps what it is given. Proposes nothing."""

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
        tokens: Tensor,  # noqa: ARG002  (the rows keep them)
        positions: Tensor,  # noqa: ARG002  (they follow each other)
        first: int,  # noqa: ARG002  (every row, always)
    ) -> None:
        self.features.append(features.half().cpu())

    def draft(
        self, slots: Slots, rows: int, count: int, kv_len: int, encoder_len: int, choose: Choose
    ) -> None:
        raise NotImplementedError("a recorder is never asked for proposals")


def check_language(checkpoint: Checkpoint, language: str) -> None:
    """Raises ModelError for a language that the target does not know."""
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
        rows = [Sequence(Request(audio), language) for audio in audios]
        for row in rows:
            row.set_prompt(self._table, int(self._whisper.config.max_target_positions))
        self._decode(phases, rows, window)
        features = torch.cat(recorder.features, 1)
        return [
            _trajectory(row, features[at], recorder.states[0][at], self._table.eot)
            for at, row in enumerate(rows)
        ]

    def _decode(self, phases: Phases, rows: list[Sequence], window: int) -> None:
        """Emit until every row has ended; rows that have ended idle on."""
        count, prompt_len = len(rows), len(rows[0].prompt_tokens)
        none = self._integers([0] * count)
        nothing = none[:, None][:, :0]
        prompts = PrefillInputs(
            tokens=self._integers([row.prompt_tokens for row in rows]),
            prompt_lens=none + prompt_len,
            starts=none + rows[0].prompt_tokens.index(self._table.sot),
            candidates=nothing,
            counts=none,
            first=0,
            kv_len=_kv_len(prompt_len),
            encoder_len=window,
            sampled=False,
        )
        outputs = unpack(phases.prefill(prompts), count, prefill=True)
        for longest in count_from(prompt_len + 1):
            for row, output in zip(rows, outputs, strict=True):
                if not row.finished(self._table.eot):
                    row.tokens += output.tokens
            if all(row.finished(self._table.eot) for row in rows):
                return
            anchors = VerifyInputs(
                nothing, none, none > 0, _kv_len(longest), encoder_len=window, sampled=False
            )
            outputs = unpack(phases.verify(anchors), count, prefill=False)

    def _integers(self, numbers: abc.Sequence[int] | abc.Sequence[abc.Sequence[int]]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)


def _kv_len(positions: int) -> int:
    """Cached positions that attention looks at, the next one included."""
    return _KV_STEP * (1 + positions // _KV_STEP)


def _trajectory(row: Sequence, features: Tensor, states: Tensor, eot: int) -> Trajectory:
    tokens = row.prompt_tokens + row.tokens
    audio_len = audio_states(len(row.request.audio), len(states))
    return Trajectory(
        tokens=torch.tensor(tokens),
        prompt_len=len(row.prompt_tokens),
        states=states[:audio_len].half().cpu(),
        features=features[: len(tokens) - 1].clone(),
        finished=row.tokens[-1] == eot,
    )
