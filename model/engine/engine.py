"""The engine: utterances in, hypotheses out, many at a time.

`admit` takes a slot, `step` runs one round for every occupied slot and returns what finished. Sequences
join and leave between rounds. Occupied slots stay compact: the last sequence moves into a freed one. An
engine belongs to one thread.

In a round every sequence proposes (a text, or the drafter does), one target pass verifies, and the
accepted prefix and one token of the target's own are emitted (Whisper-Flash 3.1, A.1). Plain decoding is
a round without proposals, k = 0.
"""

from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import torch

from model.checkpoints.load import Checkpoint, ModelError
from model.drafting.drafter_files import TrainedDrafter
from model.engine.batch_sizes import BUCKETS, STAGED
from model.engine.coverage import Coverage
from model.engine.draft_planner import DraftPlanner, ProposerFactory, previous_text
from model.engine.language_detection import given_language, set_languages
from model.engine.memory_fallback import MemoryFallback
from model.engine.requests import Failure, Request, RequestOutput, check
from model.engine.round_output import RoundOutput
from model.engine.runner import Runner
from model.engine.sequence import Proposal, Sequence
from model.engine.warm_up import Measure, capture
from model.whisper.measure import median_seconds
from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE
from model.whisper.quantised import Precision

BLOCK = 8  # most candidates in a round


@dataclass(frozen=True, slots=True)
class Batch:
    """A pass that has run: its sequences, and the proposal and the output of each."""

    sequences: list[Sequence]
    proposals: list[Proposal]
    outputs: list[RoundOutput]


class Engine:
    """Whisper behind slots.

    slots: how many utterances are decoded at once; their caches are allocated here, once.
    drafter: a trained network that proposes in every round. proposer: makes a request's own
    proposer, or none; by default it proposes `draft_tokens`. block: most candidates of a round.
    static: whether shapes are few and batches padded, as graphs need; by default on CUDA.
    precision: "int8", for the CPU alone, is another target: faster, with about as many words
    wrong. Raises torch.OutOfMemoryError when the caches do not fit the device.
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
        self._memory = MemoryFallback(self.runner, slots)
        self._sequences: list[Sequence] = []
        self._arrived: list[Request] = []
        self._coverage = Coverage(self.runner, checkpoint.heads, self._arrived.append)

    @property
    def slots(self) -> int:
        """Most requests that may run at once; the number falls when memory runs out."""
        return self._memory.slots

    @property
    def drafter(self) -> str | None:
        """The drafter's name for clients; None where decoding is plain greedy."""
        return self.planner.drafter

    @property
    def occupied(self) -> int:
        """Slots taken, those of requests that await their first step included."""
        return len(self._sequences) + len(self._arrived)

    def warm_up(self, measure: Measure = median_seconds) -> None:
        """Run every phase once, so that the first client does not wait for it.

        Measures pass times, too, where there is a drafter: its draft length follows from them. Raises
        ModelError when memory runs out.
        """
        try:
            capture(self.runner, self.slots)
            audio = np.zeros(SAMPLE_RATE, np.float32)
            for fitted in (False, True):
                self.admit(Request(audio, fitted_window=fitted))
                while self.occupied:
                    for result in self.step():
                        if isinstance(result, Failure):
                            raise ValueError(result.message)
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
        self._remove(self._coverage.cancel(request))

    def _remove(self, request: Request) -> None:
        if request in self._arrived:
            self._arrived.remove(request)
        for index, sequence in enumerate(self._sequences):
            if sequence.request is request:
                self._free(index)
                return

    @torch.inference_mode()
    def step(self) -> list[RequestOutput | Failure]:
        """Prefill the admitted requests, then run one round; returns what finished."""
        arrived = self._arrived.copy()
        self._arrived.clear()
        finished: list[RequestOutput | Failure] = []
        window = self.runner.sizes.states
        for states, alike in groupby(sorted(arrived, key=window), key=window):
            group = list(alike)
            for at in range(0, len(group), STAGED):
                finished += self._admitted(group[at : at + STAGED], states)
        if self._sequences:
            finished += self._advanced()
        return finished

    def _admitted(self, requests: list[Request], states: int) -> list[RequestOutput | Failure]:
        """Prefill `requests`, which share a window of `states` encoder states."""
        finished: list[RequestOutput | Failure] = []
        prefill = partial(self._prefill, states)
        for batch in self._memory.prefill(requests, self._sequences, prefill):
            if isinstance(batch, Failure):
                finished += self._coverage.fail(batch)
            else:
                self._sequences += batch.sequences
                finished += self._deliver(batch)
        return finished

    def _advanced(self) -> list[RequestOutput | Failure]:
        """Run one round of all sequences for which there is memory."""
        batch = self._memory.round(self._sequences, self._round)
        if isinstance(batch, Failure):
            self._remove(batch.request)
            return self._coverage.fail(batch)
        for sequence in batch.sequences:
            sequence.rounds += 1
        return self._deliver(batch)

    def _prefill(self, states: int, requests: list[Request]) -> Batch:
        """Decode the first tokens of `requests`, in the slots behind the last sequence's."""
        slot = len(self._sequences)
        sequences = [Sequence(one, given_language(one, self.languages)) for one in requests]
        logits = self.runner.encode(sequences, slot, states)
        if logits is not None:
            set_languages(sequences, logits, list(self.tokens.languages))
        for sequence in sequences:
            sequence.set_prompt(self.tokens, self.runner.context)
        self.runner.begin(slot, [len(sequence.prefix) for sequence in sequences])
        proposals = [self.planner.begin(sequence) for sequence in sequences]
        return Batch(sequences, proposals, self.runner.prefill(sequences, proposals, slot, states))

    def _round(self, sequences: list[Sequence]) -> Batch:
        """Every sequence proposes, one target pass verifies."""
        proposals = self.planner.propose(sequences)
        return Batch(sequences, proposals, self.runner.round(sequences, proposals))

    def _deliver(self, batch: Batch) -> list[RequestOutput | Failure]:
        """Append what the target emitted, and free the slots of finished sequences."""
        for sequence, proposal, output in zip(
            batch.sequences, batch.proposals, batch.outputs, strict=True
        ):
            sequence.append_output(proposal, output)
            self.planner.learn(sequence, proposal, output)
        finished: list[RequestOutput | Failure] = []
        # A move needs the sequences' lengths, so all outputs are appended first.
        for sequence in [one for one in batch.sequences if one.finished(self.tokens.eot)]:
            slot = self._sequences.index(sequence)
            if sequence.fall_back(self.tokens):
                self.runner.rewind(slot, sequence)
                continue
            finished += self._coverage.finish(slot, sequence)
            self._free(slot)
        return finished

    def _free(self, index: int) -> None:
        """Forget the sequence in slot `index`; the last sequence takes the slot."""
        last = self._sequences.pop()
        if index < len(self._sequences):
            self.runner.move(len(self._sequences), index, last)
            self._sequences[index] = last
