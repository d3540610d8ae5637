"""Sums since the daemon began. Counts what it is told; the event loop alone touches it.

α is `accepted` / `proposed`; τ, the tokens of a pass, is (`accepted` + `rounds`) / `rounds`: each pass
emits what it accepts and one token of the target's own.
"""

from collections import Counter
from dataclasses import dataclass, field

from streaming.protocol import DecodeFigures


@dataclass(slots=True)
class Totals:
    """Since the daemon began. By label: what clients were refused for, and close codes of connections."""

    started: int = 0
    resumed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    audio_samples: int = 0
    finals: int = 0
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    reused: int = 0
    transcript_errors: int = 0

    @property
    def alpha(self) -> float:
        """Share of the drafted tokens that were accepted; 0 where none was drafted."""
        return self.accepted / self.proposed if self.proposed else 0.0

    @property
    def tau(self) -> float:
        """Tokens of a pass; 0 where there was none."""
        return (self.accepted + self.rounds) / self.rounds if self.rounds else 0.0

    def final(self, figures: DecodeFigures) -> None:
        """A final has been told: decoded for that, or early, when its silence began."""
        self.finals += 1
        self.rounds += figures.rounds
        self.proposed += figures.proposed
        self.accepted += figures.accepted
        self.reused += figures.reused
