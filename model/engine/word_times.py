"""Word times of a finished transcript, from one more pass of the decoder, which is never captured."""

from contextlib import suppress

import torch

from model.engine.runner import Runner
from model.engine.sequence import Sequence
from model.whisper.alignment import Heads, WordTiming, align


def word_times(
    runner: Runner, heads: Heads, slot: int, sequence: Sequence, tokens: tuple[int, ...]
) -> tuple[WordTiming, ...] | None:
    """The words of `tokens`, the transcript of `sequence` in `slot`; None where memory runs out.

    The transcript is delivered without them then. heads: those whose attention follows the audio.
    """
    assert sequence.language is not None
    with suppress(torch.OutOfMemoryError):
        return align(
            runner.whisper.decoder,
            sequence.prompt_tokens[: len(sequence.prompt_tokens) - len(sequence.prefix)],
            [token for token in tokens if token < runner.tokens.eot],
            heads,
            runner.state.cache.rows(slot, slot + 1),
            runner.sizes.states(sequence.request),
            sequence.request.audio,
            runner.tokens,
            sequence.language,
        )
    return None
