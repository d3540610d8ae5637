"""Rows in, what the target says of them out: the bridge from the host's lists to the phases' tensors.

Knows batches, shapes and graphs. With static shapes (as graphs need them) batches are padded to
buckets, and new rows are prefilled behind the slots and moved to theirs; otherwise everything has
the size it has. Which row proposes what, and what becomes of it, is not decided here.
"""

from collections import abc
from collections.abc import Callable
from functools import partial
from itertools import chain, product
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from model.checkpoints.load import Checkpoint
from model.drafting.draft_length import DraftLength
from model.drafting.drafter_files import SlotSide, Trained
from model.drafting.parallel import audio_states
from model.drafting.reading import Reader, SlotReader, collapse
from model.engine.graphs import Graphs
from model.engine.phases import Phases
from model.engine.requests import SURE, Request, as_tuple
from model.engine.sequence import Proposal, Sequence
from model.whisper.measure import median_seconds
from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE, LogMel
from model.whisper.network import Whisper
from model.whisper.quantised import Precision
from model.whisper.slots import Slots

# A fitted window ends this long after the audio: with less, Whisper loops (3 of 50 test-other
# utterances at 2 or 3 s, none at 5 s). Windows are rounded up to a multiple of it.
_WINDOW_STEP = 5 * SAMPLE_RATE // SAMPLES_PER_STATE  # encoder states
_TYPICAL = 400  # encoder states of 8 s of speech: what drafting is timed for
_KV_STEP = 64  # cached positions: attention looks at a multiple of this many
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 96)  # batch sizes with static shapes
STAGED = 8  # rows prefilled at once with static shapes
_PROMPT_LENS = (8, 240)  # tokens of an opening with static shapes: without and with a prompt
_TEXTS = (0, 64, 224)  # tokens of a text verified behind it

T = TypeVar("T")
Facts = list[float]  # of one row: tokens, log-probabilities, emitted, accepted (`Phases.verify`)


class Runner:
    """The target and its drafter over slots. Arguments as for `Engine`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: torch.device,
        slots: int,
        drafter: Trained | None,
        block: int,
        static: bool,
        reader: Reader | None = None,
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
        self.graphs = Graphs(device)
        self._device = device
        self.static = static
        self._stage = self.bucket(slots)  # where new rows are prefilled with static shapes
        room = self._stage + (STAGED if static else 0)
        self.state = Slots.allocate(self.whisper, room, self.block)
        self.drafter: SlotSide | None = None
        self._acceptance: tuple[float, ...] = ()
        bias = self.tokens.bias(first=False).to(device)
        if drafter is not None:
            self.drafter = drafter.over_slots(self.whisper, bias, room, packed=on_cpu)
            self._acceptance = drafter.acceptance
        self._mel = LogMel(config.num_mel_bins).to(device)
        self._reader = (
            None if reader is None else SlotReader(reader, self.whisper, bias, packed=on_cpu)
        )
        self._phases = Phases(self.whisper, self.tokens, self.state, self.drafter, self._reader)

    def states(self, request: Request) -> int:
        """Encoder states that the request is decoded with."""
        if not request.fitted_window:
            return self.window
        encoder_len = -(-len(request.audio) // SAMPLES_PER_STATE)
        return min(self.window, (-(-encoder_len // _WINDOW_STEP) + 1) * _WINDOW_STEP)

    def encode(self, rows: list[Sequence], slot: int, states: int, read: bool) -> list[list[int]]:
        """Encode the audio of `rows`, which share a window and take the slots from `slot` on.

        Fills in each row's language and opening. Returns what the reader reads of each: tokens, or
        nothing where there is no reader, or it is not wanted to `read`.
        """
        first = self._stage if self.static else slot
        batch = self._filled(rows)
        mel = self._mel([row.request.audio for row in batch], states)
        requests = [row.request for row in batch]
        audio_len = self._audio_len(batch)
        self.state.reset(
            first, audio_len, [r.seed for r in requests], [r.temperature for r in requests]
        )
        named = self.graphs.call(
            self._phases.encode,
            {"mel": mel.to(self.whisper.decoder.positions.dtype)},
            first=first,
            audio_len=states if self.static else max(audio_len),
            read=read or self.static,  # one graph is enough
        )
        self._detect_languages(batch, first, states)
        for row in rows:
            row.open(self.tokens, self.context)
        self.state.begin(first, [len(row.prefix) for row in rows])
        if named is None or not read:
            return [[] for _ in rows]
        return [collapse(names) for names in named.tolist()[: len(rows)]]

    def open(
        self, rows: list[Sequence], proposals: list[Proposal], slot: int, states: int
    ) -> list[Facts]:
        """Read the openings of rows just heard, and verify the texts proposed behind them.

        Fills in each row's no-speech probability.
        """
        first = self._stage if self.static else slot
        batch, texts = self._filled(rows), self._filled([p.text for p in proposals])
        prompt_tokens, text = max(len(row.prompt_tokens) for row in batch), max(map(len, texts))
        if self.static:
            prompt_tokens, text = _ceiling(prompt_tokens, _PROMPT_LENS), _ceiling(text, _TEXTS)
        # Wide enough for the longest text behind the longest opening; padding, too, has positions.
        width = min(prompt_tokens + text, int(self.state.cache.self_keys.shape[3]))
        blocks = [row.prompt_tokens + tokens for row, tokens in zip(batch, texts, strict=True)]
        packed = self._facts(
            self._phases.prefill,
            {
                "tokens": self._padded(blocks, width),
                "prompt_lens": self._tensor([len(row.prompt_tokens) for row in batch]),
                "starts": self._tensor([row.prompt_tokens.index(self.tokens.sot) for row in batch]),
                "candidates": self._padded(texts, text),
                "counts": self._tensor([len(tokens) for tokens in texts]),
            },
            first=first,
            kv_len=self._kv_len(width),
            encoder_len=self._encoder_len(states),
            sampled=any(row.sampled for row in batch),
        )
        if self.static:
            for index in range(len(rows)):
                # As far as openings and texts reach; how much of those is kept is not known yet.
                self._move(first + index, slot + index, width, states)
        facts = []
        for row, (silence, *rest) in zip(rows, packed, strict=False):
            row.no_speech = silence
            facts.append(rest)
        return facts

    def round(self, rows: list[Sequence], proposals: list[Proposal]) -> list[Facts]:
        """One target pass over the rows in slots 0, 1, 2 …, the drafter's pass before it."""
        count = self.bucket(len(rows))
        sampled = any(row.sampled for row in rows)
        longest = max(row.position + p.count for row, p in zip(rows, proposals, strict=True)) + 1
        kv_len = self._kv_len(longest)
        encoder_len = self._encoder_len(max(self.states(row.request) for row in rows))
        if any(p.drafted for p in proposals):
            audio_len = self.window if self.static else max(self._audio_len(rows))
            drafted = self.block if self.static else max(p.drafted for p in proposals)
            self._draft(count, drafted, kv_len=kv_len, encoder_len=audio_len, sampled=sampled)
        k = max(p.count for p in proposals)
        if self.static and k:
            k = self.block
        idle = [Proposal()] * (count - len(rows))
        facts = self._verify(
            proposals + idle, k, kv_len=kv_len, encoder_len=encoder_len, sampled=sampled
        )
        return facts[: len(rows)]

    def rewind(self, slot: int, row: Sequence) -> None:
        """Decode `row`, in `slot`, from its opening on once more, as it says now."""
        self.state.rewind(
            slot, len(row.prompt_tokens), row.prompt_tokens[-1], row.seed, row.temperature
        )

    def move(self, source: int, target: int, row: Sequence) -> None:
        """Copy what `row` has in slot `source` over slot `target`."""
        positions, states = len(row.prompt_tokens) + len(row.tokens), self.states(row.request)
        self._move(source, target, positions, states)

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

    def fitting(self, rows: int) -> int:
        """At most `rows`: as many as can be computed without those behind them."""
        return max(b for b in BUCKETS if b <= rows) if self.static else rows

    def give_up_drafter(self) -> bool:
        """Free the memory of drafter, reader and graphs. False if there was none left to free.

        Captured graphs refer to the networks, so that from now on nothing is replayed.
        """
        had = self.drafter is not None or self._reader is not None or len(self.graphs) > 0
        self.graphs.forget()
        self.drafter = self._reader = None
        self._phases = Phases(self.whisper, self.tokens, self.state, None)
        return had

    def bucket(self, rows: int) -> int:
        """The batch size in which `rows` rows are computed."""
        return _ceiling(rows, BUCKETS) if self.static else rows

    @torch.inference_mode()
    def capture(self, slots: int) -> None:
        """Run every phase in every static shape, largest first; with graphs, capture and seal them.

        Leaves no row behind.
        """
        self.graphs.begin()
        shapes = {"reach": self._kv_len(0), "heard": self.window}
        for rows in [b for b in reversed(BUCKETS) if b <= self.bucket(slots)]:
            for sampled in (False, True):
                if self.drafter is not None:
                    self._draft(rows, self.block, **shapes, sampled=sampled)
                for k in sorted({0, self.block}, reverse=True):
                    self._verify([Proposal()] * rows, k, **shapes, sampled=sampled)
        silence = np.zeros(2, np.float32)
        for count in [b for b in reversed(BUCKETS) if b <= STAGED]:
            for states in range(self.window, _WINDOW_STEP, -_WINDOW_STEP):
                row = Sequence(Request(silence), next(iter(self.tokens.languages), "en"))
                self.encode([row] * count, 0, states, read=True)
            if self.tokens.languages:
                self._detect_languages([Sequence(Request(silence), None)] * count, self._stage, 1)
            for prompt_tokens, text in product(_PROMPT_LENS, _TEXTS):
                for temperature in (0.0, 1.0):
                    row = Sequence(Request(silence, temperature=temperature), "en")
                    row.open(self.tokens, self.context)
                    longest = min(prompt_tokens, self.context // 2 + len(row.prompt_tokens))
                    row.prompt_tokens = (
                        row.prompt_tokens[:1] * (longest - len(row.prompt_tokens))
                        + row.prompt_tokens
                    )
                    draft = Proposal([0] * min(text, row.max_new_tokens - 1))
                    self.open([row] * count, [draft] * count, 0, self.window)
        self.graphs.seal()

    @torch.inference_mode()
    def measured_draft_length(self, slots: int) -> DraftLength:
        """Times of plain and of drafted rounds on this machine, over slots that hold nothing."""
        kv_len = self._kv_len(2 * _KV_STEP)
        audio_len = self.window if self.static else min(_TYPICAL, self.window)
        # With static shapes a round has all of the block or nothing.
        some = () if self.static else (1, 2, 4)
        blocks = sorted({0, self.block, *(k for k in some if k < self.block)})
        verify: dict[int, dict[int, float]] = {}
        draft: dict[int, dict[int, float]] = {}
        for bucket in [bucket for bucket in BUCKETS if bucket <= _ceiling(slots, BUCKETS)]:
            rows = bucket if self.static else min(bucket, slots)
            self.state.lengths[:rows] = 1
            drafting = partial(
                self._draft, rows, kv_len=kv_len, encoder_len=audio_len, sampled=False
            )
            draft[rows] = {k: median_seconds(partial(drafting, k)) for k in blocks if k}
            idle = [Proposal()] * rows
            verifying = partial(
                self._verify, idle, kv_len=kv_len, encoder_len=self.window, sampled=False
            )
            verify[rows] = {k: median_seconds(partial(verifying, k=k)) for k in blocks}
        return DraftLength(verify, draft, self._acceptance)

    def _detect_languages(self, batch: list[Sequence], first: int, states: int) -> None:
        """Fill in the language of the rows that have none."""
        if all(row.language is not None for row in batch):
            return
        logits = self.graphs.call(
            self._phases.detect,
            {},
            first=first,
            last=first + len(batch),
            encoder_len=self._encoder_len(states),
        )
        assert logits is not None
        known = list(self.tokens.languages)
        for row, scores in zip(batch, logits.cpu(), strict=True):
            if row.language is None:
                among = list(as_tuple(row.request.language)) or known
                probabilities = scores[[known.index(code) for code in among]].softmax(-1)
                best = int(probabilities.argmax())
                if row.request.language_hint in among and probabilities[best] < SURE:
                    best = among.index(row.request.language_hint)
                row.language = among[best]
                row.language_probability = float(probabilities[best])

    def _draft(
        self, rows: int, count: int, *, kv_len: int, encoder_len: int, sampled: bool
    ) -> None:
        self.graphs.call(
            self._phases.draft,
            {},
            rows=rows,
            count=count,
            kv_len=kv_len,
            encoder_len=encoder_len,
            sampled=sampled,
        )

    def _verify(
        self, proposals: list[Proposal], k: int, *, kv_len: int, encoder_len: int, sampled: bool
    ) -> list[Facts]:
        return self._facts(
            self._phases.verify,
            {
                "candidates": self._padded([p.text for p in proposals], k),
                "counts": self._tensor([p.count for p in proposals]),
                "drafted": self._tensor([p.drafted for p in proposals]) > 0,
            },
            kv_len=kv_len,
            encoder_len=encoder_len,
            sampled=sampled,
        )

    def _facts(
        self, phase: Callable[..., Tensor], tensors: dict[str, Tensor], **constants: int | bool
    ) -> list[Facts]:
        """The one device-to-host read of a pass."""
        packed = self.graphs.call(phase, tensors, **constants)
        assert packed is not None
        facts: list[Facts] = packed.tolist()
        return facts

    def _filled(self, items: list[T]) -> list[T]:
        """Copies of the last item fill a bucket up."""
        return items + [items[-1]] * (self.bucket(len(items)) - len(items))

    def _kv_len(self, longest: int) -> int:
        """Cached positions that attention looks at: `longest`, rounded up."""
        most = int(self.state.cache.self_keys.shape[3])
        return most if self.static else min(-(-longest // _KV_STEP) * _KV_STEP, most)

    def _encoder_len(self, states: int) -> int:
        """Encoder states that attention looks at; in int8 all, whose number orders its sums."""
        return self.window if self.static or self.whisper.int8 else states

    def _audio_len(self, rows: list[Sequence]) -> list[int]:
        """Encoder states that a drafter hears, by row."""
        return [audio_states(len(row.request.audio), self.window) for row in rows]

    def _tensor(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)

    def _padded(self, lists: list[list[int]], width: int) -> Tensor:
        padded = [numbers + [self.tokens.eot] * (width - len(numbers)) for numbers in lists]
        return self._tensor(list(chain.from_iterable(padded))).view(len(lists), width)


def _ceiling(number: int, steps: abc.Sequence[int]) -> int:
    """The least of the ascending `steps` that is not below `number`."""
    return next(step for step in steps if step >= number)
