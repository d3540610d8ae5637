"""Draft planning: what every sequence proposes in a round, and what the planner learns of the outcome.

A sequence's own text comes first, then the drafter, with as many candidates as pay.
"""

from collections.abc import Callable

from model.drafting.draft_length import DraftLength
from model.drafting.drafter_files import TrainedDrafter
from model.drafting.interface import Proposer
from model.drafting.previous_text import PreviousText
from model.engine.requests import Request
from model.engine.round_output import RoundOutput
from model.engine.runner import Runner
from model.engine.sequence import Proposal, Sequence
from model.engine.warm_up import Measure, measured_draft_length

ProposerFactory = Callable[[Request], Proposer | None]


def previous_text(request: Request) -> Proposer | None:
    """A proposer of the request's `draft_tokens`, if it has any."""
    return PreviousText(request.draft_tokens) if request.draft_tokens else None


class DraftPlanner:
    """Plans the proposals of `runner`'s sequences.

    proposer: makes a request's own proposer, or none. drafter: the runner's, as it was trained.
    draft_length: chooses how many candidates the drafter proposes; None takes the whole block.
    """

    def __init__(
        self, runner: Runner, proposer: ProposerFactory, drafter: TrainedDrafter | None
    ) -> None:
        self.proposer = proposer
        self.draft_length: DraftLength | None = None
        self._runner = runner
        self._trained = drafter

    @property
    def drafter(self) -> str | None:
        """The drafter's name; None where there is none, or memory ran out for it."""
        if self._trained is None or self._runner.drafter is None:
            return None
        return self._trained.name

    def measure(self, slots: int, measure: Measure) -> None:
        """Choose draft lengths by the pass times of this machine, where there is a drafter."""
        if self._trained is not None and self._runner.drafter is not None:
            acceptance = self._trained.acceptance
            self.draft_length = measured_draft_length(self._runner, slots, acceptance, measure)

    def begin(self, sequence: Sequence) -> Proposal:
        """The proposal of `sequence`, which has its prompt tokens, for its prefill."""
        # A sampled sequence's text must follow from its seed alone where a drafter draws for it, not from
        # the hypothesis before.
        if not sequence.sampled or self._runner.drafter is None:
            sequence.set_proposer(self.proposer(sequence.request))
        return sequence.propose(sequence.max_new_tokens)

    def propose(self, sequences: list[Sequence]) -> list[Proposal]:
        """The proposals of one round: texts, and the drafter's candidates for sequences without a text.

        A sampled sequence always takes the whole block: its draws depend on it.
        """
        block = self._runner.block
        proposals = [sequence.propose(block) for sequence in sequences]
        if self._runner.drafter is None:
            return proposals
        k = block
        if self.draft_length is not None and any(
            not p.text and not sequence.sampled
            for sequence, p in zip(sequences, proposals, strict=True)
        ):
            k = self.draft_length.choose(len(sequences))
        return [
            p if p.text else sequence.draft(block if sequence.sampled else k)
            for sequence, p in zip(sequences, proposals, strict=True)
        ]

    def learn(self, sequence: Sequence, proposal: Proposal, output: RoundOutput) -> None:
        """Learn the acceptance from one sequence's outcome."""
        if proposal.drafted and self.draft_length is not None and not sequence.sampled:
            # Candidates behind an accepted end of transcript were never judged.
            self.draft_length.learn(min(proposal.drafted, len(output.tokens)), output.accepted)
