"""The phases of decoding as functions of static buffers: encode, detect, prefill, draft, verify.

Every phase works on a run of neighbouring slots, reads and writes the buffers of `Slots`, has
shapes that follow from its inputs' shapes and constants alone, and reads nothing back to the
host: so each can be captured as a graph. The engine knows which sequence is in which slot.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.drafting.interface import Drafter
from model.engine.graphs import PhaseInputs
from model.engine.rejection_sampler import (
    DRAFT,
    RejectionOutput,
    accept,
    sample,
    uniform,
    warm_softmax,
)
from model.engine.round_output import pack
from model.whisper.network import Whisper
from model.whisper.slots import Slots
from model.whisper.tokens import TokenTable


@dataclass(frozen=True, slots=True)
class EncodeInputs(PhaseInputs):
    """mel: log-mel [rows, bins, 2 * states]. first: slot. audio_len: states with audio in the longest row."""

    mel: Tensor
    first: int
    audio_len: int


@dataclass(frozen=True, slots=True)
class DetectInputs(PhaseInputs):
    """Slots first … last - 1. encoder_len: encoder states that attention covers."""

    first: int
    last: int
    encoder_len: int


@dataclass(frozen=True, slots=True)
class PrefillInputs(PhaseInputs):
    """Prompts, and a text to verify behind each, for the fresh slots from `first` on.

    tokens: [rows, n] int64, each prompt, its candidates, padding. prompt_lens: [rows]. starts:
    [rows], where the start token stands. candidates: [rows, k], of which counts [rows] count.
    kv_len, encoder_len: cached positions and encoder states that attention covers. sampled:
    whether any temperature is above 0.
    """

    tokens: Tensor
    prompt_lens: Tensor
    starts: Tensor
    candidates: Tensor
    counts: Tensor
    first: int
    kv_len: int
    encoder_len: int
    sampled: bool


@dataclass(frozen=True, slots=True)
class DraftInputs(PhaseInputs):
    """`count` candidates for slots 0 … rows - 1. kv_len, audio_len: as for `Drafter.draft`."""

    rows: int
    count: int
    kv_len: int
    audio_len: int
    sampled: bool


@dataclass(frozen=True, slots=True)
class VerifyInputs(PhaseInputs):
    """Candidates of slots 0 … rows - 1.

    candidates: [rows, k] int64, texts from the host, filled up with ends; where drafted [rows] is
    true, the drafter's first k take their place. counts: [rows], how many are proposed. The rest as
    for a prefill.
    """

    candidates: Tensor
    counts: Tensor
    drafted: Tensor
    kv_len: int
    encoder_len: int
    sampled: bool


@dataclass(frozen=True, slots=True)
class Drafted:
    """The drafter's last proposals: tokens [slots, block], distribution [slots, block, vocabulary]."""

    tokens: Tensor
    distribution: Tensor


@dataclass(frozen=True, slots=True)
class _Proposed:
    """Candidates for acceptance; drafted [rows], distribution [rows, k, vocabulary]."""

    candidates: Tensor
    counts: Tensor
    drafted: Tensor | None = None
    distribution: Tensor | None = None


class Phases:
    """The target's phases over `slots`, and its drafter's, if it has one."""

    def __init__(
        self, whisper: Whisper, tokens: TokenTable, slots: Slots, drafter: Drafter | None
    ) -> None:
        device = slots.lengths.device
        self._whisper = whisper
        self._slots = slots
        self._drafter = drafter
        self._aux_layers = () if drafter is None else drafter.aux_layers
        self._eot, self._sot, self._no_speech = tokens.eot, tokens.sot, tokens.no_speech
        self._bias = tokens.bias(first=False).to(device)
        self._first_bias = tokens.bias(first=True).to(device)
        self._prefix_bias = tokens.continuing().to(device)  # for the first token behind a prefix
        self._languages = torch.tensor(list(tokens.languages.values()), device=device)
        shape = (len(slots.lengths), 0 if drafter is None else drafter.block)
        self.drafted = Drafted(
            torch.zeros(shape, dtype=torch.int64, device=device),
            torch.zeros(*shape, tokens.vocabulary, device=device),
        )

    def encode(self, inputs: EncodeInputs) -> None:
        """Encode, and write the keys and values of the decoder's and the drafter's cross-attention."""
        states = self._whisper.encoder(inputs.mel)
        first, last = inputs.first, inputs.first + len(inputs.mel)
        self._whisper.decoder.write_cross(states, self._slots.cache.rows(first, last))
        self._slots.states[first:last] = states.shape[1]
        if self._drafter is not None:
            self._drafter.encode(states[:, : inputs.audio_len], first)

    def detect(self, inputs: DetectInputs) -> Tensor:
        """Logits of the languages, [rows, languages] in the token table's order.

        The pass reads the start token alone; the prefill then overwrites its cache.
        """
        start = torch.full((inputs.last - inputs.first, 1), self._sot, device=self._bias.device)
        hidden, _ = self._pass(start, inputs.first, kv_len=1, encoder_len=inputs.encoder_len)
        return self._whisper.decoder.logits(hidden[:, 0])[:, self._languages].float()

    def prefill(self, inputs: PrefillInputs) -> Tensor:
        """Read prompts, and verify the texts behind them. Returns a tensor of `pack`, with no_speech."""
        tokens, first = inputs.tokens, inputs.first
        lengths = self._slots.lengths[first : first + len(tokens)]
        lengths.zero_()
        hidden, features = self._pass(tokens, first, inputs.kv_len, inputs.encoder_len)
        span = torch.arange(inputs.candidates.shape[1] + 1, device=tokens.device)
        last = inputs.prompt_lens - 1
        wanted = torch.cat((inputs.starts[:, None], last[:, None] + span), 1)
        # Places behind the last candidate do not count.
        wanted = wanted.clamp(max=tokens.shape[1] - 1)
        rows = torch.arange(len(tokens), device=tokens.device)[:, None]
        logits = self._whisper.decoder.logits(hidden[rows, wanted])
        # Whisper takes the probability of silence from the position that predicts the language.
        silence = logits[:, 0].float().softmax(-1)[:, self._no_speech]
        self._remember(features, tokens, first)
        lengths.copy_(last)
        proposed = _Proposed(inputs.candidates, inputs.counts)
        return pack(self._judge(logits[:, 1:], proposed, first, sampled=inputs.sampled), silence)

    def draft(self, inputs: DraftInputs) -> None:
        """Let the drafter propose; `verify` finds the tokens in `drafted`."""
        assert self._drafter is not None
        choose = self._sampled if inputs.sampled else self._greedy
        self._drafter.draft(
            self._slots, inputs.rows, inputs.count, inputs.kv_len, inputs.audio_len, choose
        )

    def _greedy(self, logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        best = logits.argmax(-1)
        return self._keep(best if ids is None else ids[best], at)

    def _sampled(self, logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        """Draw each candidate from its distribution, which acceptance reads; greedy where T = 0."""
        rows, n, _ = logits.shape
        slots, distribution = self._slots, self.drafted.distribution
        if ids is not None:
            whole = logits.new_full((rows, n, distribution.shape[-1]), -torch.inf)
            whole[..., ids] = logits
            logits = whole
        warm = warm_softmax(logits, slots.temperatures[:rows])
        distribution[:rows, at : at + n].copy_(warm)
        positions = slots.emitted[:rows, None] + torch.arange(at, at + n, device=logits.device)
        drawn = sample(warm, uniform(slots.seeds[:rows, None], positions, DRAFT))
        hot = slots.temperatures[:rows, None] > 0
        return self._keep(torch.where(hot, drawn, logits.argmax(-1)), at)

    def _keep(self, candidates: Tensor, at: int) -> Tensor:
        rows, n = candidates.shape
        self.drafted.tokens[:rows, at : at + n].copy_(candidates)
        return candidates

    def verify(self, inputs: VerifyInputs) -> Tensor:
        """One target pass over anchors and candidates. Returns a tensor of `pack`, without no_speech."""
        rows, k = inputs.candidates.shape
        candidates, distribution = inputs.candidates, None
        if self._drafter is not None and k:
            drafted = self.drafted.tokens[:rows, :k]
            texts = candidates[:, : drafted.shape[1]]
            texts.copy_(torch.where(inputs.drafted[:, None], drafted, texts))
            distribution = self.drafted.distribution[:rows, :k] if inputs.sampled else None
        block = torch.cat((self._slots.anchors[:rows, None], candidates), 1)
        hidden, features = self._pass(block, 0, inputs.kv_len, inputs.encoder_len)
        logits = self._whisper.decoder.logits(hidden)
        self._remember(features, block, 0)
        proposed = _Proposed(candidates, inputs.counts, inputs.drafted, distribution)
        return pack(self._judge(logits, proposed, 0, sampled=inputs.sampled))

    def _pass(
        self, tokens: Tensor, first: int, kv_len: int, encoder_len: int
    ) -> tuple[Tensor, Tensor | None]:
        last = first + len(tokens)
        slots = self._slots
        out: tuple[Tensor, Tensor | None] = self._whisper.decoder(
            tokens,
            slots.lengths[first:last],
            slots.states[first:last],
            slots.cache.rows(first, last),
            kv_len,
            encoder_len,
            self._aux_layers,
        )
        return out

    def _remember(self, features: Tensor | None, tokens: Tensor, first: int) -> None:
        if self._drafter is None or features is None:
            return
        rows, n = tokens.shape
        lengths = self._slots.lengths[first : first + rows, None]
        positions = lengths + torch.arange(n, device=tokens.device)
        self._drafter.remember(features, tokens, positions, first)

    def _judge(
        self, logits: Tensor, proposed: _Proposed, first: int, *, sampled: bool
    ) -> RejectionOutput:
        """Accept, and advance the slots: lengths, anchors, emitted."""
        slots, last = self._slots, first + len(logits)
        lengths, emitted = slots.lengths[first:last], slots.emitted[first:last]
        given = slots.forced[first:last]
        is_first = (emitted == given)[:, None]  # the target's first token of the transcript
        rule = torch.where((given > 0)[:, None], self._prefix_bias, self._first_bias)
        ruled = logits.add_(self._bias)  # in place: nothing else reads them
        ruled[:, 0] = torch.where(is_first, ruled[:, 0] + rule, ruled[:, 0])
        rejection = accept(
            ruled,
            proposed.candidates,
            proposed.counts,
            slots.temperatures[first:last],
            slots.seeds[first:last],
            emitted,
            eot=self._eot,
            sampled=sampled,
            draft=proposed.distribution,
            distributed=proposed.drafted,
        )
        # The cache keeps the old anchor and the accepted tokens; the newest token becomes the anchor.
        # Padding slots advance, too; they must stay inside the buffers.
        lengths.copy_(
            (lengths + rejection.emitted).clamp(max=self._whisper.config.max_target_positions)
        )
        slots.anchors[first:last] = rejection.tokens.gather(1, rejection.emitted[:, None] - 1)[:, 0]
        emitted += rejection.emitted
        return rejection
