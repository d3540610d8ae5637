"""The phases of decoding as functions of static buffers: encode, detect, prefill, draft, verify.

Every phase works on a run of neighbouring slots, reads and writes the buffers of `Slots`, has
shapes that follow from its arguments' shapes and constants alone, and reads nothing back to the
host: so each can be captured as a graph. Which utterance sits in which slot is the engine's affair.
"""

from typing import Protocol

import torch
from torch import Tensor

from model.engine.rejection_sampler import (
    DRAFT,
    RejectionOutput,
    accept,
    sample,
    uniform,
    warm_softmax,
)
from model.whisper.network import Whisper
from model.whisper.slots import Slots
from model.whisper.tokens import TokenTable


class Choose(Protocol):
    """Takes what a drafter says of some candidates, and names them."""

    def __call__(self, logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        """Tokens [rows, n] int64 of candidates at … at + n - 1.

        logits: [rows, n, vocabulary], with the token rules applied; ids: int64 [vocabulary], the
        tokens that they are of, where those are not all.
        """
        ...


class Drafter(Protocol):
    """A network that proposes tokens from what the target has computed."""

    @property
    def aux_layers(self) -> tuple[int, ...]:
        """Decoder blocks whose outputs it wants, ascending."""
        ...

    @property
    def block(self) -> int:
        """Most candidates that it proposes at once."""
        ...

    def encode(self, states: Tensor, first: int) -> None:
        """Take encoder states [rows, m, width] over speech, of the slots from `first` on."""
        ...

    def remember(self, features: Tensor, tokens: Tensor, positions: Tensor, first: int) -> None:
        """Take what a pass made of tokens [rows, n] at absolute positions [rows, n].

        features: the aux layers, [rows, n, aux layers * width]. Some of the tokens may be rejected yet.
        """
        ...

    def draft(
        self, slots: Slots, rows: int, count: int, kv_len: int, encoder_len: int, choose: Choose
    ) -> None:
        """Have `choose` name `count` candidates of slots 0 … rows - 1, in order, one or more at once.

        reach, heard: static bounds; of the positions of anchors and of candidates that are wanted,
        and of `slots.spoken`.
        """
        ...


class Reader(Protocol):
    """A network that reads the whole utterance from the encoder's states at once."""

    def read(self, states: Tensor, audio_len: Tensor) -> Tensor:
        """Names int64 [rows, steps] of states [rows, m, width], of which spoken [rows] count."""
        ...


class Phases:
    """The target's phases over `slots`, and those of its drafter and reader, if it has them."""

    def __init__(
        self,
        whisper: Whisper,
        tokens: TokenTable,
        slots: Slots,
        drafter: Drafter | None,
        reader: Reader | None = None,
    ) -> None:
        device = slots.lengths.device
        self._whisper = whisper
        self._slots = slots
        self._drafter = drafter
        self._reader = reader
        self._aux_layers = () if drafter is None else drafter.aux_layers
        self._eot, self._sot, self._no_speech = tokens.eot, tokens.sot, tokens.no_speech
        self._bias = tokens.bias(first=False).to(device)
        self._first_bias = tokens.bias(first=True).to(device)
        self._joint_bias = tokens.continuing().to(device)  # behind what is given
        self._languages = torch.tensor(list(tokens.languages.values()), device=device)
        count = len(slots.lengths)
        block = 0 if drafter is None else drafter.block
        self._drafted = torch.zeros(count, block, dtype=torch.int64, device=device)
        shape = (count, block, tokens.vocabulary)
        self._distribution = torch.zeros(shape, device=device)

    def encode(
        self, mel: Tensor, *, first: int, audio_len: int, read: bool = True
    ) -> Tensor | None:
        """Hear log-mel [rows, bins, 2 * states] in the slots from `first` on.

        spoken: of the states, how many hold speech in the longest row. Returns what the reader
        reads, if there is one and it is wanted to `read`.
        """
        states = self._whisper.encoder(mel)
        last = first + len(mel)
        self._whisper.decoder.write_cross(states, self._slots.cache.rows(first, last))
        self._slots.states[first:last] = states.shape[1]
        if self._drafter is not None:
            self._drafter.encode(states[:, :audio_len], first)
        if self._reader is None or not read:
            return None
        return self._reader.read(states[:, :audio_len], self._slots.audio_len[first:last])

    def detect(self, *, first: int, last: int, encoder_len: int) -> Tensor:
        """Logits of the languages, [rows, languages] in the token table's order.

        From a pass over the start token alone, which the prefill then overwrites.
        """
        start = torch.full((last - first, 1), self._sot, device=self._bias.device)
        hidden, _ = self._pass(start, first, kv_len=1, encoder_len=encoder_len)
        return self._whisper.decoder.logits(hidden[:, 0])[:, self._languages].float()

    def prefill(
        self,
        tokens: Tensor,
        prompt_lens: Tensor,
        starts: Tensor,
        candidates: Tensor,
        counts: Tensor,
        *,
        first: int,
        kv_len: int,
        encoder_len: int,
        sampled: bool,
    ) -> Tensor:
        """Read openings, and verify a text behind them, in fresh slots from `first` on.

        tokens: [rows, n] int64, each opening, its candidates, padding. openings: [rows], their
        lengths. starts: [rows], where the start token stands. candidates: [rows, k], of which
        counts [rows] count. Returns [rows, 1 + 2 * (k + 1) + 2]: the no-speech probability, then
        as `verify`.
        """
        self._slots.lengths[first : first + len(tokens)] = 0
        hidden, features = self._pass(tokens, first, kv_len, encoder_len)
        span = torch.arange(candidates.shape[1] + 1, device=tokens.device)
        wanted = torch.cat((starts[:, None], prompt_lens[:, None] - 1 + span), 1)
        wanted = wanted.clamp(max=tokens.shape[1] - 1)  # what lies behind is no candidate
        rows = torch.arange(len(tokens), device=tokens.device)[:, None]
        logits = self._whisper.decoder.logits(hidden[rows, wanted])
        # Whisper reads the probability of silence where it would read the language.
        silence = logits[:, 0].float().softmax(-1)[:, self._no_speech]
        self._remember(features, tokens, first)
        self._slots.lengths[first : first + len(tokens)] = prompt_lens - 1
        rejection = self._judge(logits[:, 1:], candidates, counts, first, sampled=sampled)
        return torch.cat((silence[:, None].double(), _packed(rejection)), 1)

    def draft(self, *, rows: int, count: int, kv_len: int, encoder_len: int, sampled: bool) -> None:
        """Let the drafter propose `count` tokens for slots 0 … rows - 1; `verify` finds them."""
        assert self._drafter is not None
        choose = self._sampled if sampled else self._greedy
        self._drafter.draft(self._slots, rows, count, kv_len, encoder_len, choose)

    def _greedy(self, logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        best = logits.argmax(-1)
        return self._keep(best if ids is None else ids[best], at)

    def _sampled(self, logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        """Each from its distribution, which acceptance will ask for; greedy where T = 0."""
        rows, n, _ = logits.shape
        slots = self._slots
        if ids is not None:
            whole = logits.new_full((rows, n, self._distribution.shape[-1]), -torch.inf)
            whole[..., ids] = logits
            logits = whole
        warm = warm_softmax(logits, slots.temperatures[:rows])
        self._distribution[:rows, at : at + n].copy_(warm)
        positions = slots.emitted[:rows, None] + torch.arange(at, at + n, device=logits.device)
        drawn = sample(warm, uniform(slots.seeds[:rows, None], positions, DRAFT))
        hot = slots.temperatures[:rows, None] > 0
        return self._keep(torch.where(hot, drawn, logits.argmax(-1)), at)

    def _keep(self, candidates: Tensor, at: int) -> Tensor:
        rows, n = candidates.shape
        self._drafted[:rows, at : at + n].copy_(candidates)
        return candidates

    def verify(
        self,
        candidates: Tensor,
        counts: Tensor,
        drafted: Tensor,
        *,
        kv_len: int,
        encoder_len: int,
        sampled: bool,
    ) -> Tensor:
        """One target pass over the anchors and candidates of slots 0 … rows - 1.

        candidates: [rows, k] int64, texts from the host, filled up with ends. Where drafted [rows] is
        true, the drafter's first k stand in their place, but for a text that begins as they do: the
        two bear each other out, and a text goes on straighter. counts: [rows], how many are
        proposed. Returns one tensor for one transfer, [rows, 2 * (k + 1) + 2] float64: tokens,
        log-probabilities, how many tokens were emitted, how many of those were candidates.
        """
        rows, k = candidates.shape
        slots = self._slots
        distribution = None
        if self._drafter is not None and k:
            own = self._drafted[:rows, :k]
            texts = candidates[:, : own.shape[1]]
            apart = drafted[:, None] & (texts[:, :1] != own[:, :1])
            candidates[:, : own.shape[1]] = torch.where(apart, own, texts)
            distribution = self._distribution[:rows, :k] if sampled else None
        block = torch.cat((slots.anchors[:rows, None], candidates), 1)
        hidden, features = self._pass(block, 0, kv_len, encoder_len)
        logits = self._whisper.decoder.logits(hidden)
        self._remember(features, block, 0)
        rejection = self._judge(
            logits, candidates, counts, 0, sampled=sampled, draft=distribution, drafted=drafted
        )
        return _packed(rejection)

    def _pass(
        self, tokens: Tensor, first: int, kv_len: int, encoder_len: int
    ) -> tuple[Tensor, Tensor | None]:
        last = first + len(tokens)
        slots = self._slots
        hidden: tuple[Tensor, Tensor | None] = self._whisper.decoder(
            tokens,
            slots.lengths[first:last],
            slots.states[first:last],
            slots.cache.rows(first, last),
            kv_len,
            encoder_len,
            self._aux_layers,
        )
        return hidden

    def _remember(self, features: Tensor | None, tokens: Tensor, first: int) -> None:
        if self._drafter is None or features is None:
            return
        rows, n = tokens.shape
        lengths = self._slots.lengths[first : first + rows, None]
        positions = lengths + torch.arange(n, device=tokens.device)
        self._drafter.remember(features, tokens, positions, first)

    def _judge(
        self,
        logits: Tensor,
        candidates: Tensor,
        counts: Tensor,
        first: int,
        *,
        sampled: bool,
        draft: Tensor | None = None,
        drafted: Tensor | None = None,
    ) -> RejectionOutput:
        """Accept, and move the slots on: lengths, anchors, emitted."""
        slots, last = self._slots, first + len(logits)
        lengths, emitted = slots.lengths[first:last], slots.emitted[first:last]
        given = slots.forced[first:last]
        prompt_tokens = (emitted == given)[:, None]
        rule = torch.where((given > 0)[:, None], self._joint_bias, self._first_bias)
        ruled = logits.add_(self._bias)  # nobody else reads them
        ruled[:, 0] = torch.where(prompt_tokens, ruled[:, 0] + rule, ruled[:, 0])
        rejection = accept(
            ruled,
            candidates,
            counts,
            slots.temperatures[first:last],
            slots.seeds[first:last],
            emitted,
            eot=self._eot,
            sampled=sampled,
            draft=draft,
            distributed=drafted,
        )
        # The cache keeps the old anchor and what was accepted; the newest token becomes the anchor.
        # Slots that only fill a bucket up run on; they must stay inside the buffers.
        lengths.copy_(
            (lengths + rejection.emitted).clamp(max=self._whisper.config.max_target_positions)
        )
        slots.anchors[first:last] = rejection.tokens.gather(1, rejection.emitted[:, None] - 1)[:, 0]
        emitted += rejection.emitted
        return rejection


def _packed(rejection: RejectionOutput) -> Tensor:
    counts = torch.stack((rejection.emitted, rejection.accepted), 1)
    return torch.cat((rejection.tokens.double(), rejection.logprobs.double(), counts.double()), 1)
