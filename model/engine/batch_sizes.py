"""Batch sizes and padded lengths. Pure arithmetic without tensors.

Graphs need few shapes: with static shapes batches are padded to buckets and attention covers whole
buffers; otherwise nothing is padded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from model.engine.requests import Request
from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 96)  # batch sizes with static shapes
STAGED = 8  # rows prefilled at once with static shapes
PROMPTS = (8, 240)  # prompt tokens with static shapes: without and with text from the client
TEXTS = (0, 64, 224)  # draft tokens verified behind the prompt

# A fitted window has this much silence behind the audio: with less, Whisper loops (3 of 50 test-other
# utterances at 2 or 3 s, none at 5 s). Windows are multiples of it.
WINDOW_STEP = 5 * SAMPLE_RATE // SAMPLES_PER_STATE  # encoder states
KV_STEP = 64  # cached positions: attention covers a multiple of this


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """static: whether shapes are few. window: encoder states of 30 s. positions: cached, in a slot.

    whole: whether attention covers all encoder states: with static shapes, and in int8, where their
    number orders its sums.
    """

    static: bool
    window: int
    positions: int
    whole: bool

    def states(self, request: Request) -> int:
        """The encoder states with which the request is decoded."""
        if not request.fitted_window:
            return self.window
        audio = -(-len(request.audio) // SAMPLES_PER_STATE)
        return min(self.window, (-(-audio // WINDOW_STEP) + 1) * WINDOW_STEP)

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

    def encoder_len(self, states: int) -> int:
        """The encoder states that attention covers, of which `states` are valid."""
        return self.window if self.whole else states


def ceiling(number: int, steps: Sequence[int]) -> int:
    """The smallest of the ascending `steps` that is not below `number`."""
    return next(step for step in steps if step >= number)
