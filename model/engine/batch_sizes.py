"""Batch sizes and padded lengths. Pure arithmetic without tensors.

Graphs need few shapes: with static shapes batches are padded to buckets and attention covers whole
buffers; otherwise nothing is padded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 96)  # batch sizes with static shapes
STAGED = 8  # rows prefilled at once with static shapes
PROMPTS = (8, 240)  # prompt tokens with static shapes: without and with text from the client
TEXTS = (0, 64, 224)  # draft tokens verified behind the prompt

KV_STEP = 64  # cached positions: attention covers a multiple of this


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """static: whether shapes are few. window: encoder states of 30 s. positions: cached, in a slot.

    whole: whether attention covers all encoder states, whatever a row has: graphs need it.
    """

    static: bool
    window: int
    positions: int
    whole: bool

    def bucket(self, rows: int) -> int:
        """The batch size in which `rows` rows are computed."""
        return ceiling(rows, BUCKETS) if self.static else rows

    def fitting(self, rows: int) -> int:
        """The largest batch of at most `rows` that needs no padding."""
        return max(b for b in BUCKETS if b <= rows) if self.static else rows

    def prompt(self, longest: int) -> int:
        """The padded length of prompts of at most `longest` tokens."""
        return ceiling(longest, PROMPTS) if self.static else longest

    def text(self, longest: int) -> int:
        """The padded length of draft tokens, at most `longest`."""
        return ceiling(longest, TEXTS) if self.static else longest

    def kv_len(self, longest: int) -> int:
        """The cached positions that attention covers: `longest`, rounded up."""
        if self.static:
            return self.positions
        return min(-(-longest // KV_STEP) * KV_STEP, self.positions)

    def encoder_lens(self, states: Sequence[int]) -> tuple[int, ...]:
        """The encoder states that attention covers, for rows of which `states` are valid.

        Batches are padded by rows of which one state counts.
        """
        padded = (*states, *[1] * (self.bucket(len(states)) - len(states)))
        return (self.window,) * len(padded) if self.whole else padded


def ceiling(number: int, steps: Sequence[int]) -> int:
    """The smallest of the ascending `steps` that is not below `number`."""
    return next(step for step in steps if step >= number)
