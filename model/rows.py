"""The host's side of an occupied slot: what was asked, what was emitted, what it proposes next.

No tensors here; the device's side is `model.phases.Slots`.
"""

import math
from dataclasses import dataclass, field

from model.proposers import Proposer
from model.requests import Failure, Hypothesis, Request
from model.tokens import TokenTable


@dataclass(frozen=True, slots=True)
class Proposal:
    """What one row proposes in one round: the tokens of a text, or so many of the drafter's."""

    text: list[int] = field(default_factory=list)
    drafted: int = 0

    @property
    def count(self) -> int:
        """Candidates."""
        return self.drafted or len(self.text)


@dataclass(slots=True, eq=False)
class Row:
    """One request on its way to a hypothesis.

    budget: tokens that the transcript may have. opening: what stands before it.
    """

    request: Request
    language: str | None
    proposer: Proposer | None = None
    language_probability: float | None = None
    no_speech: float = 0.0
    opening: list[int] = field(default_factory=list)
    budget: int = 0
    tokens: list[int] = field(default_factory=list)
    logprob: float = 0.0
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    reused: int = 0
    _misses: int = 0  # texts in a row of which nothing was accepted
    _rest: int = 0  # rounds for which no text is proposed after those

    @property
    def sampled(self) -> bool:
        """Whether its tokens are drawn rather than chosen."""
        return self.request.temperature > 0

    @property
    def position(self) -> int:
        """Where the newest token stands in the decoder's context."""
        return len(self.opening) + len(self.tokens) - 1

    def open(self, tokens: TokenTable, context: int) -> None:
        """Fix what stands before the transcript, and how long that may become.

        As in Whisper: half the context, or what the opening leaves of it. The last token is emitted
        but never processed, so that it needs no position.
        """
        half = context // 2
        prompt = self.request.prompt.strip()
        before = tokens.encode(" " + prompt)[1 - half :] if prompt else []
        self.opening = tokens.opening(before, self.language, self.request.task)
        self.budget = min(half, 2 * half - len(self.opening) + 1)

    def propose(self, most: int, drafted: int) -> Proposal:
        """At most `most` tokens of its text, else up to `drafted` of the drafter's.

        One token less than the row may still emit: one place is the target's own (A.1).
        """
        limit = self.budget - len(self.tokens) - 1
        if self.proposer is not None:
            if self._rest:
                self._rest -= 1
            elif text := self.proposer.propose(min(most, limit)):
                return Proposal(text)
        return Proposal(drafted=min(drafted, limit))

    def take(self, proposal: Proposal, tokens: list[int], accepted: int, logprob: float) -> None:
        """Take what a target pass emitted."""
        self.tokens += tokens
        self.logprob += logprob
        self.proposed += proposal.count
        self.accepted += accepted
        if self.proposer is not None:
            self.proposer.emit(tokens)
        if proposal.text:
            self.reused += accepted
            # One miss is a repaired word. A text that fits nowhere rests for 1, 3, 7 … rounds after
            # the next ones: it must not slow the row down.
            self._misses = 0 if accepted else self._misses + 1
            self._rest = 2 ** max(self._misses - 1, 0) - 1

    def result(self, table: TokenTable) -> Hypothesis | Failure:
        """What became of the request."""
        if not math.isfinite(self.logprob):
            return Failure(self.request, "the model's output is not finite for this utterance")
        assert self.language is not None
        return Hypothesis(
            request=self.request,
            text=table.decode(self.tokens).strip(),
            tokens=tuple(self.tokens),
            language=self.language,
            language_probability=self.language_probability,
            no_speech=self.no_speech,
            mean_logprob=self.logprob / len(self.tokens),
            rounds=self.rounds,
            proposed=self.proposed,
            accepted=self.accepted,
            reused=self.reused,
        )

    def finished(self, eot: int) -> bool:
        """Whether nothing more is to be emitted, for good or ill."""
        ended = self.tokens[-1] == eot or len(self.tokens) == self.budget
        return ended or not math.isfinite(self.logprob)
