"""What a finished transcript attended to, from one more pass of the decoder, which is never captured."""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.engine.runner import Runner
from model.engine.sequence import Sequence
from model.whisper.alignment import Heads, WordTiming, align, attention
from model.whisper.mel import SAMPLES_PER_STATE


@dataclass(frozen=True, slots=True, eq=False)
class Attended:
    """The pass over `text`, tokens without the end of transcript, at least one.

    weights: [heads, len(text) + 1, states that hold audio], float32 on the CPU; hidden: [len(text) + 1,
    width]. Row n predicts token n of the text, the last one its end.
    """

    text: list[int]
    weights: Tensor
    hidden: Tensor


def attend(
    runner: Runner, heads: Heads, slot: int, sequence: Sequence, text: list[int]
) -> Attended:
    """One pass over `text`, the transcript of the finished `sequence` in `slot`.

    heads: those whose attention follows the audio. Raises torch.OutOfMemoryError.
    """
    prompt = sequence.prompt_tokens[: len(sequence.prompt_tokens) - len(sequence.prefix)]
    states = runner.sizes.states(sequence.request)
    weights, hidden = attention(
        runner.whisper.decoder,
        prompt + text,
        heads,
        runner.state.cache.rows(slot, slot + 1),
        states,
        min(states, -(-len(sequence.request.audio) // SAMPLES_PER_STATE)),
    )
    first = len(prompt) - 1  # the position before a token predicts it
    return Attended(text, weights[:, first:], hidden[first:])


def word_times(runner: Runner, sequence: Sequence, attended: Attended) -> tuple[WordTiming, ...]:
    """The words of a transcript with their times. Raises torch.OutOfMemoryError."""
    assert sequence.language is not None
    text = attended.text
    logits = runner.whisper.decoder.logits(attended.hidden[:-1]).float().cpu()
    probabilities = logits.softmax(-1)[torch.arange(len(text)), text].tolist()
    audio = sequence.request.audio
    return align(attended.weights, probabilities, text, audio, runner.tokens, sequence.language)
