"""A sequence: the host's side of an occupied slot. It has the request, the tokens emitted, the attempts.

It holds no tensors; the device's side is `model.whisper.slots.Slots`.
"""

import math
from dataclasses import dataclass, field

from model.drafting.interface import Proposer
from model.engine.fallback import DOUBTED, failed, is_repetitive, repetition_start
from model.engine.requests import Failure, Request, RequestOutput
from model.engine.round_output import RoundOutput
from model.whisper.tokens import TokenTable


@dataclass(frozen=True, slots=True)
class Proposal:
    """A sequence's proposal in one round: a text, a number of the drafter's tokens, or nothing."""

    text: list[int] = field(default_factory=list)
    drafted: int = 0

    @property
    def count(self) -> int:
        """How many candidates it has."""
        return self.drafted or len(self.text)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One whole transcript of a sequence; after a fallback it has several."""

    tokens: tuple[int, ...]
    text: str
    certain: int
    mean_logprob: float
    temperature: float
    looped: bool

    @property
    def rank(self) -> tuple[bool, float]:
        """Greater is better: a repetitive text comes last, then the mean log-probability counts."""
        repeats = self.looped or is_repetitive(self.text)
        return not repeats, self.mean_logprob


@dataclass(slots=True, eq=False)
class Sequence:
    """One request on its way to a hypothesis.

    max_new_tokens: most tokens that the target may add. prompt_tokens: the tokens before those; they
    end with `prefix`, with which the transcript must begin. attempts: completed transcripts.
    """

    request: Request
    language: str | None
    proposer: Proposer | None = field(default=None, init=False)
    language_probability: float | None = None
    no_speech: float = 0.0
    prompt_tokens: list[int] = field(default_factory=list)
    prefix: list[int] = field(default_factory=list)
    max_new_tokens: int = 0
    temperature: float = 0.0
    tokens: list[int] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    reused: int = 0
    _loop: int | None = None  # the index in `tokens` at which a loop's second copy begins

    def __post_init__(self) -> None:
        self.temperature = self.request.temperature

    @property
    def sampled(self) -> bool:
        """Whether its tokens are drawn, not chosen greedily."""
        return self.temperature > 0

    @property
    def seed(self) -> int:
        """The seed of the present attempt: each attempt draws numbers of its own."""
        return self.request.seed ^ len(self.attempts)

    @property
    def position(self) -> int:
        """The newest token's position in the decoder's context."""
        return len(self.prompt_tokens) + len(self.tokens) - 1

    def set_prompt(self, tokens: TokenTable, context: int) -> None:
        """Set the prompt tokens, and how many tokens the transcript may have.

        As in Whisper: half the context, or what the prompt leaves of it. The last token is emitted but
        never processed, so that it needs no position.
        """
        half = context // 2
        prompt, begun = self.request.prompt.strip(), self.request.prefix.strip()
        self.prefix = tokens.encode(" " + begun)[: half - 1] if begun else []
        room = half - 1 - len(self.prefix)
        before = tokens.encode(" " + prompt)[-room:] if prompt and room else []
        self.prompt_tokens = [
            *tokens.prompt_tokens(before, self.language, self.request.task),
            *self.prefix,
        ]
        self.max_new_tokens = min(
            half - len(self.prefix),
            2 * half - len(self.prompt_tokens) + 1,
            self.request.max_new_tokens or half,
        )

    def set_proposer(self, proposer: Proposer | None) -> None:
        """Let `proposer` propose texts from now on; it takes the prefix as emitted."""
        self.proposer = proposer
        if proposer is not None:
            proposer.observe(self.prefix)

    @property
    def _limit(self) -> int:
        """Most candidates: the last token that may still be emitted is the target's own (A.1)."""
        return self.max_new_tokens - len(self.tokens) - 1

    def propose(self, most: int) -> Proposal:
        """Propose at most `most` tokens of its text, if it has one."""
        if self.proposer is None:
            return Proposal()
        return Proposal(self.proposer.propose(min(most, self._limit)))

    def draft(self, most: int) -> Proposal:
        """Have the drafter propose at most `most` candidates."""
        return Proposal(drafted=min(most, self._limit))

    def append_output(self, proposal: Proposal, output: RoundOutput) -> None:
        """Append what a target pass emitted; with stop_on_repetition, up to the end of a loop.

        Token by token: where a loop is cut must not depend on the rounds.
        """
        self.proposed += proposal.count
        self.accepted += output.accepted
        if output.no_speech is not None:
            self.no_speech = output.no_speech
        for token, logprob in zip(output.tokens, output.logprobs, strict=True):
            self.tokens.append(token)
            self.logprobs.append(logprob)
            if self.request.stop_on_repetition:
                self._loop = repetition_start(self.tokens)
                if self._loop is not None:
                    break
        if self.proposer is not None:
            self.proposer.observe(output.tokens)
        if proposal.text:
            self.reused += output.accepted

    def finished(self, eot: int) -> bool:
        """Whether the attempt has ended: at `eot`, at its limit, in a loop, or in numbers not finite."""
        if not self.tokens:
            return False  # an attempt that has not begun
        ended = self.tokens[-1] == eot or len(self.tokens) == self.max_new_tokens
        return ended or self._loop is not None or not math.isfinite(sum(self.logprobs))

    def fall_back(self, table: TokenTable) -> bool:
        """Complete the finished attempt; True if another one begins, at the next fallback temperature."""
        if not math.isfinite(sum(self.logprobs)):
            return False
        kept = [*self.prefix, *self.tokens[: self._loop]]
        doubt = (n for n, logprob in enumerate(self.logprobs) if logprob < DOUBTED)
        sure = len(self.prefix) + next(doubt, len(self.tokens))
        attempt = Attempt(
            tokens=tuple(kept),
            text=table.decode(kept).strip(),
            mean_logprob=sum(self.logprobs) / len(self.logprobs),
            certain=len(table.decode(kept[:sure]).strip()),
            temperature=self.temperature,
            looped=self._loop is not None,
        )
        self.attempts.append(attempt)
        doubted = attempt.looped or failed(attempt.text, attempt.mean_logprob, self.no_speech)
        step = len(self.attempts) - 1
        if not doubted or step == len(self.request.fallback_temperatures):
            return False
        self.temperature = self.request.fallback_temperatures[step]
        self.tokens, self.logprobs, self._loop, self.proposer = [], [], None, None
        return True

    def result(self) -> RequestOutput | Failure:
        """The request's output: the last attempt if it passed, else the best one."""
        if not math.isfinite(sum(self.logprobs)):
            return Failure(self.request, "the model's output is not finite for this utterance")
        assert self.language is not None
        best = max(self.attempts, key=lambda attempt: attempt.rank)
        if len(self.attempts) <= len(self.request.fallback_temperatures):
            best = self.attempts[-1]  # temperatures are left: it passed
        return RequestOutput(
            request=self.request,
            text=best.text,
            tokens=best.tokens,
            language=self.language,
            language_probability=self.language_probability,
            no_speech=self.no_speech,
            certain=best.certain,
            mean_logprob=best.mean_logprob,
            rounds=self.rounds,
            proposed=self.proposed,
            accepted=self.accepted,
            reused=self.reused,
            temperature=best.temperature,
            looped=best.looped,
        )
