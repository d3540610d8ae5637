"""The runner: from sequences to the phases' tensors, and from those to typed outputs.

Knows batches and graphs. With static shapes batches are padded, and new sequences are prefilled behind
the slots and then moved to their own. The planner decides what a sequence proposes, the engine what
becomes of it.
"""

from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor

from model.checkpoints.load import Checkpoint
from model.drafting.drafter_files import SlotSide, TrainedDrafter
from model.drafting.parallel import audio_states
from model.engine.batch_sizes import STAGED, BatchSizes
from model.engine.graphs import Graphs
from model.engine.phases import (
    DetectInputs,
    DraftInputs,
    EncodeInputs,
    Phases,
    PrefillInputs,
    VerifyInputs,
)
from model.engine.round_output import RoundOutput, unpack
from model.engine.sequence import Proposal, Sequence
from model.whisper.mel import LogMel
from model.whisper.network import Whisper
from model.whisper.quantised import Precision
from model.whisper.slots import Slots

T = TypeVar("T")


class Runner:
    """The target and its drafter over slots. Arguments as for `Engine`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: torch.device,
        slots: int,
        drafter: TrainedDrafter | None,
        block: int,
        static: bool,
        precision: Precision = "float32",
    ) -> None:
        config = checkpoint.config
        on_cpu = device.type == "cpu"
        dtype = torch.float32 if on_cpu else torch.float16
        self.whisper = Whisper.from_weights(
            config, checkpoint.weights, device, dtype, packed=on_cpu, int8=precision == "int8"
        )
        self.tokens = checkpoint.tokens
        self.block = block if drafter is None else min(block, drafter.network.architecture.block)
        self.context = int(config.max_target_positions)
        self.window = int(config.max_source_positions)
        self.sizes = BatchSizes(
            static=static,
            window=self.window,
            positions=self.context + self.block + 1,
            whole=static or self.whisper.int8,
        )
        self.graphs = Graphs(device)
        self._device = device
        # Where new sequences are prefilled with static shapes.
        self._stage = self.sizes.bucket(slots)
        room = self._stage + (STAGED if static else 0)
        self.state = Slots.allocate(self.whisper, room, self.block)
        self.drafter: SlotSide | None = None
        if drafter is not None:
            bias = self.tokens.bias(first=False).to(device)
            self.drafter = drafter.over_slots(self.whisper, bias, room, packed=on_cpu)
        self._mel = LogMel(config.num_mel_bins).to(device)
        self.phases = Phases(self.whisper, self.tokens, self.state, self.drafter)

    def encode(self, sequences: list[Sequence], slot: int, states: int) -> Tensor | None:
        """Encode the audio of `sequences`, which share a window and take the slots from `slot` on.

        Logits of the languages, [sequences, languages] on the host, where a sequence has no language.
        """
        first = self._first(slot)
        batch = self._filled(sequences)
        mel = self._mel([sequence.request.audio for sequence in batch], states)
        audio_lens = self._audio_lens(batch)
        temperatures = [sequence.temperature for sequence in batch]
        self.state.reset(first, audio_lens, [one.seed for one in batch], temperatures)
        inputs = EncodeInputs(
            mel.to(self.whisper.decoder.positions.dtype),
            first=first,
            audio_len=states if self.sizes.static else max(audio_lens),
        )
        self.graphs.call(self.phases.encode, inputs)
        if all(sequence.language is not None for sequence in sequences):
            return None
        detect = DetectInputs(first, first + len(batch), self.sizes.encoder_len(states))
        return self.graphs.call(self.phases.detect, detect).cpu()[: len(sequences)]

    def begin(self, slot: int, prefix_lens: list[int]) -> None:
        """Begin transcripts with prefixes of so many tokens, in the slots from `slot` on."""
        self.state.begin(self._first(slot), prefix_lens)

    def prefill(
        self, sequences: list[Sequence], proposals: list[Proposal], slot: int, states: int
    ) -> list[RoundOutput]:
        """Read the prompt tokens of encoded sequences, and verify the texts proposed behind them."""
        first = self._first(slot)
        batch, texts = self._filled(sequences), self._filled([p.text for p in proposals])
        prompt = self.sizes.prompt(max(len(sequence.prompt_tokens) for sequence in batch))
        text = self.sizes.text(max(map(len, texts)))
        # The longest text fits behind the longest prompt; padding, too, takes positions.
        width = min(prompt + text, self.sizes.positions)
        blocks = [one.prompt_tokens + tokens for one, tokens in zip(batch, texts, strict=True)]
        inputs = PrefillInputs(
            tokens=self._padded(blocks, width),
            prompt_lens=self._tensor([len(sequence.prompt_tokens) for sequence in batch]),
            starts=self._tensor([one.prompt_tokens.index(self.tokens.sot) for one in batch]),
            candidates=self._padded(texts, text),
            counts=self._tensor([len(tokens) for tokens in texts]),
            first=first,
            kv_len=self.sizes.kv_len(width),
            encoder_len=self.sizes.encoder_len(states),
            sampled=any(sequence.sampled for sequence in batch),
        )
        packed = self.graphs.call(self.phases.prefill, inputs)
        outputs = unpack(packed, len(sequences), prefill=True)
        if self.sizes.static:
            for index in range(len(sequences)):
                # Whole prompts and texts: the host does not know yet how much of a text is kept.
                self._move(first + index, slot + index, width, states)
        return outputs

    def round(self, sequences: list[Sequence], proposals: list[Proposal]) -> list[RoundOutput]:
        """The drafter's pass, then one target pass, over the sequences in slots 0, 1, 2 …"""
        static, count = self.sizes.static, self.sizes.bucket(len(sequences))
        sampled = any(sequence.sampled for sequence in sequences)
        ends = (one.position + p.count for one, p in zip(sequences, proposals, strict=True))
        kv_len = self.sizes.kv_len(max(ends) + 1)
        most = max(p.drafted for p in proposals)
        if most:
            audio_len = self.window if static else max(self._audio_lens(sequences))
            self.draft(count, self.block if static else most, kv_len, audio_len, sampled=sampled)
        k = max(p.count for p in proposals)
        idle = [Proposal()] * (count - len(sequences))
        outputs = self.verify(
            proposals + idle,
            self.block if static and k else k,
            kv_len=kv_len,
            encoder_len=self.sizes.encoder_len(
                max(self.sizes.states(s.request) for s in sequences)
            ),
            sampled=sampled,
        )
        return outputs[: len(sequences)]

    def draft(self, rows: int, count: int, kv_len: int, audio_len: int, *, sampled: bool) -> None:
        """One pass of the drafter over slots 0 … rows - 1. Arguments as of `DraftInputs`."""
        self.graphs.call(self.phases.draft, DraftInputs(rows, count, kv_len, audio_len, sampled))

    def verify(
        self, proposals: list[Proposal], k: int, *, kv_len: int, encoder_len: int, sampled: bool
    ) -> list[RoundOutput]:
        """One target pass over the slots 0, 1, 2 …, one for each of `proposals`, k candidates wide."""
        inputs = VerifyInputs(
            candidates=self._padded([p.text for p in proposals], k),
            counts=self._tensor([p.count for p in proposals]),
            drafted=self._tensor([p.drafted for p in proposals]) > 0,
            kv_len=kv_len,
            encoder_len=encoder_len,
            sampled=sampled,
        )
        packed = self.graphs.call(self.phases.verify, inputs)
        return unpack(packed, len(proposals), prefill=False)

    def rewind(self, slot: int, sequence: Sequence) -> None:
        """Decode `sequence`, in `slot`, again from its prompt on, with its present temperature and seed."""
        prompt = sequence.prompt_tokens
        self.state.rewind(slot, len(prompt), prompt[-1], sequence.seed, sequence.temperature)

    def move(self, source: int, target: int, sequence: Sequence) -> None:
        """Copy the state of `sequence` from slot `source` to slot `target`."""
        positions = len(sequence.prompt_tokens) + len(sequence.tokens)
        self._move(source, target, positions, self.sizes.states(sequence.request))

    def _move(self, source: int, target: int, positions: int, states: int) -> None:
        self.state.move(source, target, positions, states)
        if self.drafter is not None:
            self.drafter.move(source, target, positions, states)

    def clear(self, slot: int) -> None:
        """Zero a slot whose utterance had values that are not finite.

        A mask does not protect from them: a masked value is still multiplied by 0. With static shapes
        the slots of the prefill hold copies.
        """
        for first, last in ((slot, slot + 1), (self._stage, len(self.state.lengths))):
            self.state.clear(first, last)
            if self.drafter is not None:
                self.drafter.clear(first, last)

    def give_up_drafter(self) -> bool:
        """Free the memory of drafter and graphs. False if both were gone already.

        Captured graphs refer to the networks, so nothing is replayed from now on.
        """
        had = self.drafter is not None or len(self.graphs) > 0
        self.graphs.forget()
        self.drafter = None
        self.phases = Phases(self.whisper, self.tokens, self.state, None)
        return had

    def _first(self, slot: int) -> int:
        """Where sequences are prefilled that take the slots from `slot` on."""
        return self._stage if self.sizes.static else slot

    def _filled(self, items: list[T]) -> list[T]:
        """The items, padded to a bucket by copies of the last one."""
        return items + [items[-1]] * (self.sizes.bucket(len(items)) - len(items))

    def _audio_lens(self, sequences: list[Sequence]) -> list[int]:
        """Encoder states that hold audio, by sequence: those a drafter reads."""
        return [audio_states(len(sequence.request.audio), self.window) for sequence in sequences]

    def _tensor(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)

    def _padded(self, lists: list[list[int]], width: int) -> Tensor:
        padded = [numbers + [self.tokens.eot] * (width - len(numbers)) for numbers in lists]
        return self._tensor(list(chain.from_iterable(padded))).view(len(lists), width)
