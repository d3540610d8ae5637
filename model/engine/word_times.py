"""When the words of a finished transcript were said: one more pass of the decoder, never captured."""

from contextlib import suppress

import torch

from model.engine.runner import Runner
from model.engine.sequence import Sequence
from model.whisper.alignment import Heads, WordTiming, align


def word_times(
    runner: Runner, heads: Heads, slot: int, row: Sequence, tokens: tuple[int, ...]
) -> tuple[WordTiming, ...] | None:
    """The words of `tokens`, the transcript of `row` in `slot`; None where memory runs out.

    Nobody's text is lost for their times. heads: those whose attention follows the audio.
    """
    assert row.language is not None
    with suppress(torch.OutOfMemoryError):
        return align(
            runner.whisper.decoder,
            row.prompt_tokens[: len(row.prompt_tokens) - len(row.prefix)],
            [token for token in tokens if token < runner.tokens.eot],
            heads,
            runner.state.cache.rows(slot, slot + 1),
            runner.sizes.states(row.request),
            row.request.audio,
            runner.tokens,
            row.language,
        )
    return None
