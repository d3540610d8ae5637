"""The engine: utterances in, hypotheses out, many at a time.

`admit` takes a slot, `step` runs one round for every occupied slot and returns what finished;
`transcribe` wraps the two for offline use. Rows join and leave between rounds. Occupied rows are
kept compact: the last row moves into a freed one. An engine belongs to one thread.

A round is: every row proposes (a text, or the drafter), one target pass verifies, the accepted
prefix and one token of the target's own are emitted (Whisper-Flash 3.1, A.1). Without proposals it
is plain decoding: the same machine with k = 0.
"""

from collections import abc, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch

from model.checkpoints.load import Checkpoint, ModelError
from model.drafting.draft_length import DraftLength, ReadingPace
from model.drafting.drafter_files import Trained, TrainedReader
from model.drafting.previous_text import PreviousText, Proposer, spliced
from model.engine.requests import Failure, Request, RequestOutput, WordTiming, as_tuple, check
from model.engine.runner import BUCKETS, STAGED, Facts, Runner
from model.engine.sequence import Proposal, Sequence
from model.whisper.alignment import align
from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE
from model.whisper.quantised import Precision

BLOCK = 8  # most candidates in a round


def _audio_len(request: Request) -> str:
    """The language that is said to be spoken; empty where that is not known."""
    return request.language if isinstance(request.language, str) else ""


class Engine:
    """Whisper behind slots.

    slots: how many utterances are decoded at once; their caches are allocated here, once.
    drafter: a trained network that proposes in every round. reader: one that proposes a whole text
    at the start. proposer: makes a request's own proposer, or none; by default its `previous` tokens
    are reused, with what is read behind them. block: most candidates of a round. static: whether shapes are
    few and batches padded, as graphs need; by default on CUDA. precision: "int8", for the CPU alone,
    is a target of its own: about as many words wrong, in less time.
    Raises torch.OutOfMemoryError when the caches do not fit the device.
    """

    drafter: str | None
    """The networks that propose, as clients are told; None where decoding is plain greedy."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "cpu",
        slots: int = 4,
        drafter: Trained | None = None,
        reader: TrainedReader | None = None,
        proposer: Callable[[Request], Proposer | None] | None = None,
        block: int = BLOCK,
        static: bool | None = None,
        precision: Precision = "float32",
    ) -> None:
        if not 1 <= slots <= BUCKETS[-1]:
            raise ValueError(f"slots lie in 1 … {BUCKETS[-1]}, not {slots}")
        self.name = checkpoint.name
        self.slots = slots
        self.tokens = checkpoint.tokens
        self.languages = checkpoint.tokens.codes
        self.drafter = " + ".join(one.name for one in (reader, drafter) if one) or None
        self.runner = Runner(
            checkpoint,
            device=torch.device(device),
            slots=slots,
            drafter=drafter,
            reader=None if reader is None else reader.network,
            block=block,
            static=device != "cpu" if static is None else static,
            precision=precision,
        )
        self._heads = checkpoint.heads
        self._proposer = proposer
        self._draft_length: DraftLength | None = None
        self._reading = ReadingPace()
        self._rows: list[Sequence] = []
        self._arrived: list[Request] = []

    @property
    def occupied(self) -> int:
        """Slots taken, requests that wait for their first step included."""
        return len(self._rows) + len(self._arrived)

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
        for states in sorted({self.runner.states(request) for request in arrived}):
            group = [request for request in arrived if self.runner.states(request) == states]
            for at in range(0, len(group), STAGED):
                finished += self._prefill_in_memory(group[at : at + STAGED], states)
        if self._rows:
            finished += self._round_in_memory()
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

    def warm_up(self) -> None:
        """Run every phase once, so that the first client does not pay for it.

        Measures pass times, too, where a drafter's block has to be chosen. Raises ModelError when
        memory runs out.
        """
        try:
            if self.runner.static:
                self.runner.capture(self.slots)
            audio = np.zeros(SAMPLE_RATE, np.float32)
            self.transcribe(Request(audio, fitted_window=fitted) for fitted in (False, True))
            if self.runner.drafter is not None:
                self._draft_length = self.runner.measured_draft_length(self.slots)
        except torch.OutOfMemoryError as error:
            raise ModelError(
                f"{self.slots} slots of the model {self.name} do not fit the device's memory once "
                f"they are at work: take fewer ({str(error).splitlines()[0]})"
            ) from None

    def _prefill_in_memory(
        self, requests: list[Request], states: int
    ) -> list[RequestOutput | Failure]:
        """Prefill; when memory runs out first in halves, then without the drafter."""
        try:
            rows, proposals, facts = self._prefill(requests, states)
        except torch.OutOfMemoryError:
            pass
        else:
            self._rows += rows
            return self._deliver(rows, proposals, facts)
        # Only here, behind the exception, is the failed batch's memory free again.
        if len(requests) > 1:
            half = len(requests) // 2
            return self._prefill_in_memory(requests[:half], states) + self._prefill_in_memory(
                requests[half:], states
            )
        if self._give_up_drafter():
            return self._prefill_in_memory(requests, states)
        # What runs goes on; nothing is added to it any more.
        self.slots = self.runner.fitting(max(len(self._rows), 1))
        return [Failure(requests[0], "the device's memory is exhausted")]

    def _round_in_memory(self) -> list[RequestOutput | Failure]:
        """A round; when memory runs out, of half the rows from now on, then without the drafter.

        Rows behind the first `slots` wait until others have finished; nothing is lost.
        """
        try:
            proposals, facts = self._round()
        except torch.OutOfMemoryError:
            pass
        else:
            advanced = self._rows[: len(facts)]
            for row in advanced:
                row.rounds += 1
            return self._deliver(advanced, proposals, facts)
        rows = min(self.slots, len(self._rows))
        if rows > 1:
            self.slots = self.runner.fitting(rows // 2)
        elif not self._give_up_drafter():
            row = self._rows[0]
            self._free(0)
            return [Failure(row.request, "the device's memory is exhausted")]
        return self._round_in_memory()

    def _give_up_drafter(self) -> bool:
        """Decode without the drafter from now on. False if there was none left."""
        self.drafter = self._draft_length = None
        return self.runner.give_up_drafter()

    def _prefill(
        self, requests: list[Request], states: int
    ) -> tuple[list[Sequence], list[Proposal], list[Facts]]:
        """Decode the first tokens of `requests`, in the slots behind the last row."""
        slot = len(self._rows)
        rows = [self._row(request) for request in requests]
        read = any(self._worth_reading(request) for request in requests)
        for row, reading in zip(rows, self.runner.encode(rows, slot, states, read), strict=True):
            row.follow(self._proposer_of(row, reading))
        proposals = [row.propose(row.max_new_tokens) for row in rows]
        return rows, proposals, self.runner.open(rows, proposals, slot, states)

    def _row(self, request: Request) -> Sequence:
        wanted = as_tuple(request.language) or tuple(self.languages)
        return Sequence(request, wanted[0] if len(wanted) == 1 else None)

    def _worth_reading(self, request: Request) -> bool:
        """A reader writes down what is said; it does not translate."""
        if request.task != "transcribe" or self._proposer is not None:
            return False
        return self._reading.choose(_audio_len(request))

    def _proposer_of(self, row: Sequence, reading: list[int]) -> Proposer | None:
        # Where a drafter draws for a sampled row, its text must follow from its seed alone: not from
        # what was said of the utterance before, nor from whether readings are worth their time.
        if row.sampled and self.runner.drafter is not None:
            return None
        if self._proposer is not None:
            return self._proposer(row.request)
        previous = row.request.draft_tokens
        if not reading:
            return PreviousText(previous) if previous else None
        row.read = not previous
        whole = [*reading, self.tokens.eot]
        return PreviousText(spliced(previous, whole, self.tokens.eot) if previous else whole)

    def _round(self) -> tuple[list[Proposal], list[Facts]]:
        """Every row proposes, one target pass verifies."""
        rows = self._rows[: self.slots]
        proposals = [row.propose(self.runner.block) for row in rows]
        if self.runner.drafter is not None:
            proposals = self._drafted(rows, proposals)
        return proposals, self.runner.round(rows, proposals)

    def _drafted(self, rows: list[Sequence], proposals: list[Proposal]) -> list[Proposal]:
        """With the drafter's candidates for the rows that have no text, or one that is only read.

        What a sampled row draws follows from its blocks, so that theirs never change.
        """
        wanting = [row.read or not p.text for row, p in zip(rows, proposals, strict=True)]
        k = block = self.runner.block
        greedy = any(want and not row.sampled for row, want in zip(rows, wanting, strict=True))
        if self._draft_length is not None and greedy:
            k = self._draft_length.choose(len(rows))
        return [
            row.draft(block if row.sampled else k, p.text) if want and (k or row.sampled) else p
            for row, p, want in zip(rows, proposals, wanting, strict=True)
        ]

    def _deliver(
        self, rows: list[Sequence], proposals: list[Proposal], facts: list[Facts]
    ) -> list[RequestOutput | Failure]:
        """Take what the target emitted, and free the rows that are finished."""
        finished: list[RequestOutput | Failure] = []
        for row, proposal, (*pairs, emitted, accepted) in zip(rows, proposals, facts, strict=True):
            tokens, logprobs = pairs[: int(emitted)], pairs[len(pairs) // 2 :][: int(emitted)]
            row.take(proposal, [int(token) for token in tokens], int(accepted), logprobs)
            if proposal.drafted and self._draft_length is not None and not row.sampled:
                # What lies behind an accepted end was never judged.
                self._draft_length.learn(min(proposal.drafted, int(emitted)), int(accepted))
            if row.read and not row.rounds and not row.attempts:
                self._reading.learn(_audio_len(row.request), int(accepted))
        # Only now that every row knows its length may rows be moved.
        for row in [row for row in rows if row.finished(self.tokens.eot)]:
            slot = self._rows.index(row)
            if row.fall_back(self.tokens):
                self.runner.rewind(slot, row)
                continue
            result = row.result()
            if isinstance(result, RequestOutput) and row.request.words:
                # Out of memory the words stay without times: nobody's text is lost for those.
                with suppress(torch.OutOfMemoryError):
                    result = replace(result, timed=self._timed(slot, row, result.tokens))
            finished.append(result)
            if isinstance(result, Failure):
                self.runner.clear(slot)
            self._free(slot)
        return finished

    def _timed(self, slot: int, row: Sequence, tokens: abc.Sequence[int]) -> tuple[WordTiming, ...]:
        """When the words of the transcript of `row` were said: one more pass, never captured."""
        assert row.language is not None
        return align(
            self.runner.whisper.decoder,
            row.prompt_tokens[: len(row.prompt_tokens) - len(row.prefix)],
            [token for token in tokens if token < self.tokens.eot],
            self._heads,
            self.runner.state.cache.rows(slot, slot + 1),
            self.runner.states(row.request),
            row.request.audio,
            self.tokens,
            row.language,
        )

    def _free(self, index: int) -> None:
        """Forget row `index`; the last row takes its slot."""
        last = self._rows.pop()
        if index < len(self._rows):
            self.runner.move(len(self._rows), index, last)
            self._rows[index] = last
