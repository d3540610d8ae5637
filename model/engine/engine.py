"""The engine: utterances in, hypotheses out, many at a time.

`admit` takes a slot, `step` runs one round for every occupied slot and returns what finished;
`transcribe` wraps the two for offline use. Rows join and leave between rounds. Occupied rows are
kept compact: the last row moves into a freed one. An engine belongs to one thread.

A round is: every row proposes (a text, or the drafter), one target pass verifies, the accepted
prefix and one token of the target's own are emitted (Whisper-Flash 3.1, A.1). Without proposals it
is plain decoding: the same machine with k = 0.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np
import torch

from model.checkpoints.load import Checkpoint, ModelError
from model.drafting.drafter_files import TrainedDrafter
from model.engine.batch_sizes import BUCKETS, STAGED
from model.engine.draft_planner import DraftPlanner, ProposerFactory, previous_text
from model.engine.language_detection import given_language
from model.engine.memory_fallback import MemoryFallback
from model.engine.requests import Failure, Request, RequestOutput, check
from model.engine.round_output import RoundOutput
from model.engine.runner import Runner
from model.engine.sequence import Proposal, Sequence
from model.engine.warm_up import Measure, capture
from model.engine.word_times import word_times
from model.whisper.measure import median_seconds
from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE
from model.whisper.quantised import Precision

BLOCK = 8  # most candidates in a round


@dataclass(frozen=True, slots=True)
class Batch:
    """A pass that has run: its rows, what each proposed and what came of it."""

    rows: list[Sequence]
    proposals: list[Proposal]
    outputs: list[RoundOutput]


class Engine:
    """Whisper behind slots.

    slots: how many utterances are decoded at once; their caches are allocated here, once.
    drafter: a trained network that proposes in every round. proposer: makes a request's own
    proposer, or none; by default its `previous` tokens are reused. block: most candidates of a
    round. static: whether shapes are few and batches padded, as graphs need; by default on CUDA.
    precision: "int8", for the CPU alone, is a target of its own: about as many words wrong, in less
    time. Raises torch.OutOfMemoryError when the caches do not fit the device.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "cpu",
        slots: int = 4,
        drafter: TrainedDrafter | None = None,
        proposer: ProposerFactory = previous_text,
        block: int = BLOCK,
        static: bool | None = None,
        precision: Precision = "float32",
    ) -> None:
        if not 1 <= slots <= BUCKETS[-1]:
            raise ValueError(f"slots lie in 1 … {BUCKETS[-1]}, not {slots}")
        self.name = checkpoint.name
        self.tokens = checkpoint.tokens
        self.languages = checkpoint.tokens.codes
        self.runner = Runner(
            checkpoint,
            device=torch.device(device),
            slots=slots,
            drafter=drafter,
            block=block,
            static=device != "cpu" if static is None else static,
            precision=precision,
        )
        self.planner = DraftPlanner(self.runner, proposer, drafter)
        self._heads = checkpoint.heads
        self._memory = MemoryFallback(self.runner, slots)
        self._rows: list[Sequence] = []
        self._arrived: list[Request] = []

    @property
    def slots(self) -> int:
        """How many requests may run at once: fewer when memory has run out."""
        return self._memory.slots

    @property
    def drafter(self) -> str | None:
        """The network that proposes, as clients are told; None where decoding is plain greedy."""
        return self.planner.drafter

    @property
    def occupied(self) -> int:
        """Slots taken, requests that wait for their first step included."""
        return len(self._rows) + len(self._arrived)

    def warm_up(self, measure: Measure = median_seconds) -> None:
        """Run every phase once, so that the first client does not pay for it.

        Measures pass times, too, where a drafter's block has to be chosen. Raises ModelError when
        memory runs out.
        """
        try:
            capture(self.runner, self.slots)
            audio = np.zeros(SAMPLE_RATE, np.float32)
            self.transcribe(Request(audio, fitted_window=fitted) for fitted in (False, True))
            self.planner.measure(self.slots, measure)
        except torch.OutOfMemoryError as error:
            raise ModelError(
                f"{self.slots} slots of the model {self.name} do not fit the device's memory once "
                f"they are at work: take fewer ({str(error).splitlines()[0]})"
            ) from None

    def check(self, request: Request) -> None:
        """Raises ValueError, in words for the client, for a request that cannot be served."""
        check(
            request,
            model=self.name,
            languages=self.languages,
            multilingual=bool(self.tokens.languages),
            most_samples=self.runner.window * SAMPLES_PER_STATE,
            vocabulary=self.tokens.vocabulary,
        )

    def admit(self, request: Request) -> None:
        """Take a slot. Raises ValueError as `check` does, RuntimeError when none is free."""
        self.check(request)
        if self.occupied >= self.slots:
            raise RuntimeError(f"all {self.slots} slots are occupied")
        self._arrived.append(request)

    def cancel(self, request: Request) -> None:
        """Free the request's slot, if it has one; no result follows."""
        if request in self._arrived:
            self._arrived.remove(request)
        for index, row in enumerate(self._rows):
            if row.request is request:
                self._free(index)
                return

    @torch.inference_mode()
    def step(self) -> list[RequestOutput | Failure]:
        """Prefill what was admitted, then one round for every row; returns what finished."""
        arrived, self._arrived = self._arrived, []
        finished: list[RequestOutput | Failure] = []
        window = self.runner.sizes.states
        for states, alike in groupby(sorted(arrived, key=window), key=window):
            group = list(alike)
            for at in range(0, len(group), STAGED):
                finished += self._admitted(group[at : at + STAGED], states)
        if self._rows:
            finished += self._advanced()
        return finished

    def transcribe(self, requests: Iterable[Request]) -> list[RequestOutput]:
        """Decode all, as many at a time as there are slots; results in the order of requests.

        Raises ValueError for the first request that cannot be decoded.
        """
        order = list(requests)
        for request in order:
            self.check(request)
        waiting, done = deque(order), dict[Request, RequestOutput]()
        while waiting or self.occupied:
            while waiting and self.occupied < self.slots:
                self.admit(waiting.popleft())
            for result in self.step():
                if isinstance(result, Failure):
                    for request in order:
                        self.cancel(request)
                    raise ValueError(result.message)
                done[result.request] = result
        return [done[request] for request in order]

    def _admitted(self, requests: list[Request], states: int) -> list[RequestOutput | Failure]:
        """Prefill `requests`, which share a window of so many encoder states."""
        finished: list[RequestOutput | Failure] = []
        prefill = partial(self._prefill, states)
        for batch in self._memory.prefill(requests, self._rows, prefill):
            if isinstance(batch, Failure):
                finished.append(batch)
            else:
                self._rows += batch.rows
                finished += self._deliver(batch)
        return finished

    def _advanced(self) -> list[RequestOutput | Failure]:
        """One round for every row that there is memory for."""
        batch = self._memory.round(self._rows, self._round)
        if isinstance(batch, Failure):
            self.cancel(batch.request)
            return [batch]
        for row in batch.rows:
            row.rounds += 1
        return self._deliver(batch)

    def _prefill(self, states: int, requests: list[Request]) -> Batch:
        """Decode the first tokens of `requests`, in the slots behind the last row."""
        slot = len(self._rows)
        rows = [Sequence(request, given_language(request, self.languages)) for request in requests]
        self.runner.encode(rows, slot, states)
        proposals = [self.planner.begin(row) for row in rows]
        return Batch(rows, proposals, self.runner.open(rows, proposals, slot, states))

    def _round(self, rows: list[Sequence]) -> Batch:
        """Every row proposes, one target pass verifies."""
        proposals = self.planner.propose(rows)
        return Batch(rows, proposals, self.runner.round(rows, proposals))

    def _deliver(self, batch: Batch) -> list[RequestOutput | Failure]:
        """Take what the target emitted, and free the rows that are finished."""
        for row, proposal, output in zip(batch.rows, batch.proposals, batch.outputs, strict=True):
            row.take(proposal, output)
            self.planner.learn(row, proposal, output)
        finished: list[RequestOutput | Failure] = []
        # Only now that every row knows its length may rows be moved.
        for row in [row for row in batch.rows if row.finished(self.tokens.eot)]:
            slot = self._rows.index(row)
            if row.fall_back(self.tokens):
                self.runner.rewind(slot, row)
                continue
            result = row.result()
            if isinstance(result, Failure):
                self.runner.clear(slot)
            elif row.request.words:
                timed = word_times(self.runner, self._heads, slot, row, result.tokens)
                result = replace(result, timed=timed)
            finished.append(result)
            self._free(slot)
        return finished

    def _free(self, index: int) -> None:
        """Forget row `index`; the last row takes its slot."""
        last = self._rows.pop()
        if index < len(self._rows):
            self.runner.move(len(self._rows), index, last)
            self._rows[index] = last
