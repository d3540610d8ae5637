"""Interfaces of what proposes tokens: a proposer of texts on the host, a drafter on the device.

A proposal cannot change a transcript, only the number of its target passes.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from model.whisper.slots import Slots


class Proposer(Protocol):
    """Proposes a text, verified as point masses. It belongs to one request and uses no tensors."""

    def observe(self, tokens: Sequence[int]) -> None:
        """Take the tokens that the target has emitted since the last call."""
        ...

    def propose(self, limit: int) -> list[int]:
        """At most `limit` tokens that may come next; an empty list is no proposal."""
        ...


class Choose(Protocol):
    """Chooses candidates by a drafter's logits."""

    def __call__(self, logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        """Tokens [rows, n] int64 of candidates at … at + n - 1.

        logits: [rows, n, vocabulary], with the token rules applied; ids: int64 [vocabulary], the token
        of each column; None where the columns are all tokens.
        """
        ...


class Drafter(Protocol):
    """A network that proposes tokens from what the target has computed."""

    @property
    def aux_layers(self) -> tuple[int, ...]:
        """Decoder blocks whose outputs it reads, ascending."""
        ...

    @property
    def block(self) -> int:
        """Most candidates that it proposes at once."""
        ...

    def encode(self, states: Tensor, first: int) -> None:
        """Take encoder states [rows, m, width] that hold audio, of the slots from `first` on."""
        ...

    def remember(self, features: Tensor, tokens: Tensor, positions: Tensor, first: int) -> None:
        """Take a pass's features of tokens [rows, n] at absolute positions [rows, n].

        features: the auxiliary layers' outputs, [rows, n, layers * width]. Some of the tokens may
        still be rejected.
        """
        ...

    def draft(
        self, slots: Slots, rows: int, count: int, kv_len: int, encoder_len: int, choose: Choose
    ) -> None:
        """Have `choose` choose `count` candidates of slots 0 … rows - 1, in order, one or more at once.

        kv_len, encoder_len: static bounds; of the positions of anchors and candidates, and of the
        encoder states that hold audio.
        """
        ...
