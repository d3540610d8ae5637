"""A target pass's output for each sequence: packed on the device, unpacked on the host.

One float64 tensor needs one device-to-host copy for a pass. Its columns, for k candidates: k + 1
tokens, k + 1 log-probabilities, how many tokens were emitted, how many of those were candidates, and
after a prefill the probability of silence. float64 holds every token id exactly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.engine.rejection_sampler import RejectionOutput


@dataclass(frozen=True, slots=True)
class RoundOutput:
    """The tokens that one pass emitted for one sequence.

    tokens: at least one. logprobs: of each, natural, at temperature 1. accepted: how many of the
    tokens were candidates. no_speech: probability of silence; None but after a prefill.
    """

    tokens: list[int]
    logprobs: list[float]
    accepted: int
    no_speech: float | None = None


def pack(rejection: RejectionOutput, no_speech: Tensor | None = None) -> Tensor:
    """Tokens, log-probabilities, emitted, accepted: [rows, 2 * (k + 1) + 2] float64; no_speech [rows] adds one."""
    counts = torch.stack((rejection.emitted, rejection.accepted), 1)
    columns = [rejection.tokens.double(), rejection.logprobs.double(), counts.double()]
    if no_speech is not None:
        columns.append(no_speech[:, None].double())
    return torch.cat(columns, 1)


def unpack(packed: Tensor, count: int, *, prefill: bool) -> list[RoundOutput]:
    """The outputs of the first `count` rows of `packed`. prefill: whether it has no_speech."""
    k = (packed.shape[1] - prefill) // 2 - 2  # candidates
    outputs = []
    rows: list[list[float]] = packed.tolist()
    for row in rows[:count]:
        tokens, logprobs = row[: k + 1], row[k + 1 : 2 * k + 2]
        emitted, accepted = int(row[2 * k + 2]), int(row[2 * k + 3])
        outputs.append(
            RoundOutput(
                tokens=[int(token) for token in tokens[:emitted]],
                logprobs=logprobs[:emitted],
                accepted=accepted,
                no_speech=row[-1] if prefill else None,
            )
        )
    return outputs
