"""What the engine asks of whoever proposes tokens: a text's proposer on the host, a drafter on the device.

Nothing that is proposed can change a transcript, only how many target passes it takes.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from model.whisper.slots import Slots


class Proposer(Protocol):
    """Proposes a text, verified as point masses. It belongs to one request; no tensors here."""

    def emit(self, tokens: Sequence[int]) -> None:
        """Take what the target has emitted since the last call."""
        ...

    def propose(self, limit: int) -> list[int]:
        """At most `limit` tokens that may come next; none where it has nothing to say."""
        ...


class Choose(Protocol):
    """Takes what a drafter says of some candidates, and names them."""

    def __call__(self, logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        """Tokens [rows, n] int64 of candidates at … at + n - 1.

        logits: [rows, n, vocabulary], with the token rules applied; ids: int64 [vocabulary], the
        tokens that they are of, where those are not all.
        """
        ...


class Drafter(Protocol):
    """A network that proposes tokens from what the target has computed."""

    @property
    def aux_layers(self) -> tuple[int, ...]:
        """Decoder blocks whose outputs it wants, ascending."""
        ...

    @property
    def block(self) -> int:
        """Most candidates that it proposes at once."""
        ...

    def encode(self, states: Tensor, first: int) -> None:
        """Take encoder states [rows, m, width] over speech, of the slots from `first` on."""
        ...

    def remember(self, features: Tensor, tokens: Tensor, positions: Tensor, first: int) -> None:
        """Take what a pass made of tokens [rows, n] at absolute positions [rows, n].

        features: the taps, [rows, n, taps * width]. Some of the tokens may be rejected yet.
        """
        ...

    def draft(
        self, slots: Slots, rows: int, count: int, kv_len: int, encoder_len: int, choose: Choose
    ) -> None:
        """Have `choose` name `count` candidates of slots 0 … rows - 1, in order, one or more at once.

        reach, heard: static bounds; of the positions of anchors and of candidates that are wanted,
        and of `slots.spoken`.
        """
        ...
