"""What every row proposes in a round, and what its outcome teaches about the next ones.

A row's own text comes first, then the drafter, with as many candidates as pay.
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
    """Reuse of the request's `previous` tokens, if it has some."""
    return PreviousText(request.draft_tokens) if request.draft_tokens else None


class DraftPlanner:
    """Decides for `runner`'s rows.

    proposer: makes a request's own proposer, or none. drafter: the runner's, as it was trained.
    pace: chooses how many candidates it is asked for; without one it is always the whole block.
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
        """Its name; None where there is none, or it was given up."""
        if self._trained is None or self._runner.drafter is None:
            return None
        return self._trained.name

    def measure(self, slots: int, measure: Measure) -> None:
        """Choose from now on by what passes take on this machine, where there is a drafter."""
        if self._trained is not None and self._runner.drafter is not None:
            acceptance = self._trained.acceptance
            self.draft_length = measured_draft_length(self._runner, slots, acceptance, measure)

    def begin(self, row: Sequence) -> Proposal:
        """What `row`, whose opening is fixed, proposes for its prefill."""
        # Where a drafter draws for a sampled row, its text must follow from its seed alone: not from
        # what was said of the utterance before.
        if not row.sampled or self._runner.drafter is None:
            row.follow(self.proposer(row.request))
        return row.propose(row.max_new_tokens)

    def propose(self, rows: list[Sequence]) -> list[Proposal]:
        """For one round: texts, and the drafter's candidates for the rows that have none.

        What a sampled row draws follows from its blocks, so that theirs never change.
        """
        block = self._runner.block
        proposals = [row.propose(block) for row in rows]
        if self._runner.drafter is None:
            return proposals
        k = block
        if self.draft_length is not None and any(
            not p.text and not row.sampled for row, p in zip(rows, proposals, strict=True)
        ):
            k = self.draft_length.choose(len(rows))
        return [
            p if p.text else row.draft(block if row.sampled else k)
            for row, p in zip(rows, proposals, strict=True)
        ]

    def learn(self, row: Sequence, proposal: Proposal, output: RoundOutput) -> None:
        """Take the outcome of one row's proposal."""
        if proposal.drafted and self.draft_length is not None and not row.sampled:
            # What lies behind an accepted end was never judged.
            self.draft_length.learn(min(proposal.drafted, len(output.tokens)), output.accepted)
