"""One utterance for a drafter over slots: what the target emitted and made of it, and what it heard."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from model.drafting.drafter_files import TrainedDrafter
from model.whisper.slots import Slots
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import whisper_of

WHISPER = whisper_of(CHECKPOINT)
WIDTH, BLOCK, SEEN = CHECKPOINT.config.d_model, 4, 40
GENERATOR = torch.Generator().manual_seed(2)
TOKENS = torch.randint(200, (1, 20), generator=GENERATOR)
FEATURES = torch.randn(1, 20, 2 * WIDTH, generator=GENERATOR)
STATES = torch.randn(1, SEEN, WIDTH, generator=GENERATOR)


@dataclass
class Choice:
    """Names a row's candidates by their logits, or as told, and keeps what it was shown."""

    told: tuple[int, ...]
    names: list[int] = field(default_factory=list)
    shown: list[Tensor] = field(default_factory=list)

    def __call__(self, logits: Tensor, ids: Tensor | None, at: int) -> Tensor:
        assert ids is None
        assert at == len(self.names)
        best = logits.argmax(-1)
        if self.told:
            best[-1] = self.told[at]
        self.names += best[-1].tolist()
        self.shown += logits[-1]
        return best

    @property
    def logits(self) -> Tensor:
        """[candidates, vocabulary]."""
        return torch.stack(self.shown)


class Stage:
    """The utterance in slot 0 of two."""

    def __init__(self, trained: TrainedDrafter) -> None:
        self.slots = Slots.allocate(WHISPER, 2, BLOCK)
        bias = CHECKPOINT.tokens.bias(first=False)
        self.drafter = trained.over_slots(WHISPER, bias, 2, packed=False)
        self.drafter.encode(STATES, 0)
        self.slots.audio_len[0] = SEEN

    def take(self, first: int, last: int, rejected: int = 0) -> "Stage":
        """A target pass over positions first … last - 1, and `rejected` wrong ones behind."""
        features = torch.cat((FEATURES[:, first:last], torch.randn(1, rejected, 2 * WIDTH) * 9), 1)
        tokens = torch.cat((TOKENS[:, first:last], torch.randint(200, (1, rejected))), 1)
        positions = torch.arange(first, last + rejected)[None]
        self.drafter.remember(features, tokens, positions, 0)
        self.slots.lengths[0], self.slots.anchors[0] = last, TOKENS[0, last]
        return self

    @torch.inference_mode()
    def draft(self, *, slot: int = 0, count: int = BLOCK, told: tuple[int, ...] = ()) -> Choice:
        choice = Choice(told)
        self.drafter.draft(self.slots, slot + 1, count, 64, SEEN, choice)
        return choice
