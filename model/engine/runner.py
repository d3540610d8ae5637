"""Rows in, what the target says of them out: the bridge from the host's lists to the phases' tensors.

Knows batches and graphs. With static shapes batches are padded, and new rows are prefilled behind
the slots and moved to theirs. Which row proposes what, and what becomes of it, is not decided here.
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
from model.engine.language_detection import detected_language
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
        self._stage = self.sizes.bucket(slots)  # where new rows are prefilled with static shapes
        room = self._stage + (STAGED if static else 0)
        self.state = Slots.allocate(self.whisper, room, self.block)
        self.drafter: SlotSide | None = None
        if drafter is not None:
            bias = self.tokens.bias(first=False).to(device)
            self.drafter = drafter.over_slots(self.whisper, bias, room, packed=on_cpu)
        self._mel = LogMel(config.num_mel_bins).to(device)
        self.phases = Phases(self.whisper, self.tokens, self.state, self.drafter)

    def encode(self, rows: list[Sequence], slot: int, states: int) -> None:
        """Encode the audio of `rows`, which share a window and take the slots from `slot` on.

        Fills in each row's language and opening.
        """
        first = self._stage if self.sizes.static else slot
        batch = self._filled(rows)
        mel = self._mel([row.request.audio for row in batch], states)
        audio_lens = self._audio_lens(batch)
        self.state.reset(
            first, audio_lens, [row.seed for row in batch], [row.temperature for row in batch]
        )
        inputs = EncodeInputs(
            mel.to(self.whisper.decoder.positions.dtype),
            first=first,
            audio_len=states if self.sizes.static else max(audio_lens),
        )
        self.graphs.call(self.phases.encode, inputs)
        self._detect_languages(batch, first, states)
        for row in rows:
            row.open(self.tokens, self.context)
        self.state.begin(first, [len(row.prefix) for row in rows])

    def open(
        self, rows: list[Sequence], proposals: list[Proposal], slot: int, states: int
    ) -> list[RoundOutput]:
        """Read the openings of rows just heard, and verify the texts proposed behind them."""
        first = self._stage if self.sizes.static else slot
        batch, texts = self._filled(rows), self._filled([p.text for p in proposals])
        prompt = self.sizes.prompt(max(len(row.prompt_tokens) for row in batch))
        text = self.sizes.text(max(map(len, texts)))
        # Wide enough for the longest text behind the longest opening; padding, too, has positions.
        width = min(prompt + text, self.sizes.positions)
        blocks = [row.prompt_tokens + tokens for row, tokens in zip(batch, texts, strict=True)]
        inputs = PrefillInputs(
            tokens=self._padded(blocks, width),
            prompt_lens=self._tensor([len(row.prompt_tokens) for row in batch]),
            starts=self._tensor([row.prompt_tokens.index(self.tokens.sot) for row in batch]),
            candidates=self._padded(texts, text),
            counts=self._tensor([len(tokens) for tokens in texts]),
            first=first,
            kv_len=self.sizes.kv_len(width),
            encoder_len=self.sizes.encoder_len(states),
            sampled=any(row.sampled for row in batch),
        )
        packed = self.graphs.call(self.phases.prefill, inputs)
        outputs = unpack(packed, len(rows), prefill=True)
        if self.sizes.static:
            for index in range(len(rows)):
                # As far as openings and texts reach; how much of those is kept is not known yet.
                self._move(first + index, slot + index, width, states)
        return outputs

    def round(self, rows: list[Sequence], proposals: list[Proposal]) -> list[RoundOutput]:
        """One target pass over the rows in slots 0, 1, 2 …, the drafter's pass before it."""
        static, count = self.sizes.static, self.sizes.bucket(len(rows))
        sampled = any(row.sampled for row in rows)
        longest = max(row.position + p.count for row, p in zip(rows, proposals, strict=True)) + 1
        kv_len = self.sizes.kv_len(longest)
        most = max(p.drafted for p in proposals)
        if most:
            audio_len = self.window if static else max(self._audio_lens(rows))
            drafted = self.block if static else most
            inputs = DraftInputs(count, drafted, kv_len, audio_len, sampled)
            self.graphs.call(self.phases.draft, inputs)
        k = max(p.count for p in proposals)
        idle = [Proposal()] * (count - len(rows))
        outputs = self.verify(
            proposals + idle,
            self.block if static and k else k,
            kv_len=kv_len,
            encoder_len=self.sizes.encoder_len(max(self.sizes.states(row.request) for row in rows)),
            sampled=sampled,
        )
        return outputs[: len(rows)]

    def verify(
        self, proposals: list[Proposal], k: int, *, kv_len: int, encoder_len: int, sampled: bool
    ) -> list[RoundOutput]:
        """The target's pass over the slots from 0 on, one for each of `proposals`, k candidates wide."""
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

    def rewind(self, slot: int, row: Sequence) -> None:
        """Decode `row`, in `slot`, from its opening on once more, as it says now."""
        self.state.rewind(
            slot, len(row.prompt_tokens), row.prompt_tokens[-1], row.seed, row.temperature
        )

    def move(self, source: int, target: int, row: Sequence) -> None:
        """Copy what `row` has in slot `source` over slot `target`."""
        positions = len(row.prompt_tokens) + len(row.tokens)
        self._move(source, target, positions, self.sizes.states(row.request))

    def _move(self, source: int, target: int, positions: int, states: int) -> None:
        self.state.move(source, target, positions, states)
        if self.drafter is not None:
            self.drafter.move(source, target, positions, states)

    def clear(self, slot: int) -> None:
        """Zero a slot whose utterance had values that are not finite.

        A mask does not protect from them: what is masked still multiplies by 0. With static shapes
        the places of new rows hold copies.
        """
        for first, last in ((slot, slot + 1), (self._stage, len(self.state.lengths))):
            self.state.clear(first, last)
            if self.drafter is not None:
                self.drafter.clear(first, last)

    def give_up_drafter(self) -> bool:
        """Free the memory of drafter and graphs. False if there was none left to free.

        Captured graphs refer to the networks, so that from now on nothing is replayed.
        """
        had = self.drafter is not None or len(self.graphs) > 0
        self.graphs.forget()
        self.drafter = None
        self.phases = Phases(self.whisper, self.tokens, self.state, None)
        return had

    def _detect_languages(self, batch: list[Sequence], first: int, states: int) -> None:
        """Fill in the language of the rows that have none."""
        if all(row.language is not None for row in batch):
            return
        inputs = DetectInputs(first, first + len(batch), self.sizes.encoder_len(states))
        logits = self.graphs.call(self.phases.detect, inputs).cpu()
        for row, scores in zip(batch, logits, strict=True):
            if row.language is None:
                row.language, row.language_probability = detected_language(
                    row.request, scores, list(self.tokens.languages)
                )

    def _filled(self, items: list[T]) -> list[T]:
        """Copies of the last item fill a bucket up."""
        return items + [items[-1]] * (self.sizes.bucket(len(items)) - len(items))

    def _audio_lens(self, rows: list[Sequence]) -> list[int]:
        """Encoder states that a drafter hears, by row."""
        return [audio_states(len(row.request.audio), self.window) for row in rows]

    def _tensor(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)

    def _padded(self, lists: list[list[int]], width: int) -> Tensor:
        padded = [numbers + [self.tokens.eot] * (width - len(numbers)) for numbers in lists]
        return self._tensor(list(chain.from_iterable(padded))).view(len(lists), width)
