"""Warm-up: an engine captures every shape and times rounds of every size before its first request."""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import torch

from model.drafting.draft_length import DraftLength
from model.engine.batch_sizes import BUCKETS, KV_STEP, PROMPTS, STAGED, TEXTS, WINDOW_STEP, ceiling
from model.engine.requests import Request
from model.engine.runner import Runner
from model.engine.sequence import Proposal, Sequence

_TYPICAL = 400  # encoder states of 8 s of speech: what drafting is timed for

Measure = Callable[[Callable[[], object]], float]  # seconds that a piece of work takes


@torch.inference_mode()
def capture(runner: Runner, slots: int) -> None:
    """Run every phase in every static shape, largest first; with graphs, capture and seal them.

    The slots are empty before and after. Without static shapes there is nothing to do.
    """
    if not runner.sizes.static:
        return
    runner.graphs.begin()
    for rows in [b for b in reversed(BUCKETS) if b <= runner.sizes.bucket(slots)]:
        for sampled in (False, True):
            _capture_rounds(runner, rows, sampled=sampled)
    for rows in [b for b in reversed(BUCKETS) if b <= STAGED]:
        _capture_prefills(runner, rows)
    runner.graphs.seal()


def _capture_rounds(runner: Runner, rows: int, *, sampled: bool) -> None:
    kv_len, window = runner.sizes.positions, runner.window
    if runner.drafter is not None:
        runner.draft(rows, runner.block, kv_len, window, sampled=sampled)
    for k in sorted({0, runner.block}, reverse=True):
        runner.verify([Proposal()] * rows, k, kv_len=kv_len, encoder_len=window, sampled=sampled)


def _capture_prefills(runner: Runner, count: int) -> None:
    silence = np.zeros(2, np.float32)
    # Without a language, for that has to be detected where there are several.
    sequence = Sequence(Request(silence), None if runner.tokens.languages else "en")
    for states in range(runner.window, WINDOW_STEP, -WINDOW_STEP):
        runner.encode([sequence] * count, 0, states)
    for prompt, text, temperature in product(PROMPTS, TEXTS, (0.0, 1.0)):
        sequence = Sequence(Request(silence, temperature=temperature), "en")
        sequence.set_prompt(runner.tokens, runner.context)
        longest = min(prompt, runner.context // 2 + len(sequence.prompt_tokens))
        sequence.prompt_tokens = (
            sequence.prompt_tokens[:1] * (longest - len(sequence.prompt_tokens))
            + sequence.prompt_tokens
        )
        draft = Proposal([0] * min(text, sequence.max_new_tokens - 1))
        runner.prefill([sequence] * count, [draft] * count, 0, runner.window)


@torch.inference_mode()
def measured_draft_length(
    runner: Runner, slots: int, acceptance: tuple[float, ...], measure: Measure
) -> DraftLength:
    """Times of plain and of drafted rounds on this machine, over empty slots."""
    sizes = runner.sizes
    kv_len = sizes.kv_len(2 * KV_STEP)
    audio_len = runner.window if sizes.static else min(_TYPICAL, runner.window)
    # With static shapes a round has the whole block or no candidates.
    some = () if sizes.static else (1, 2, 4)
    blocks = sorted({0, runner.block, *(k for k in some if k < runner.block)})
    verify: dict[int, dict[int, float]] = {}
    draft: dict[int, dict[int, float]] = {}
    for bucket in [bucket for bucket in BUCKETS if bucket <= ceiling(slots, BUCKETS)]:
        rows = bucket if sizes.static else min(bucket, slots)
        runner.state.lengths[:rows] = 1
        draft[rows] = {
            k: measure(partial(runner.draft, rows, k, kv_len, audio_len, sampled=False))
            for k in blocks
            if k
        }
        verifying = partial(
            runner.verify,
            [Proposal()] * rows,
            kv_len=kv_len,
            encoder_len=runner.window,
            sampled=False,
        )
        verify[rows] = {k: measure(partial(verifying, k=k)) for k in blocks}
    return DraftLength(verify, draft, acceptance)
