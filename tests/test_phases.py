"""Every phase can be captured: traced on the CPU, its graph is the eager call."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from model.drafting.reading import ReaderArchitecture, SlotReader, from_encoder
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from model.drafting.drafter_files import TrainedDrafter
from model.engine.phases import Phases
from model.whisper.network import Whisper
from model.whisper.slots import Slots
from tests.support.tiny import tiny_checkpoint
from tests.test_engine import tiny_drafter, tiny_speech_draft

CHECKPOINT = tiny_checkpoint()
ROWS = 3


class Bench:
    """Phases over fresh slots, always in the same state."""

    def __init__(self, drafter: TrainedDrafter) -> None:
        weights = CHECKPOINT.weights
        whisper = Whisper.from_weights(
            CHECKPOINT.config, weights, torch.device("cpu"), torch.float32
        )
        self.slots = Slots.allocate(whisper, 8, block=4)
        bias = CHECKPOINT.tokens.bias(first=False)
        self.drafter = drafter.over_slots(whisper, bias, 8, packed=False)
        torch.manual_seed(2)
        network = from_encoder(whisper, ReaderArchitecture(2, tuple(range(0, 200, 3))), (0, 1))
        reader = SlotReader(network, whisper, bias, packed=False)
        self.phases = Phases(whisper, CHECKPOINT.tokens, self.slots, self.drafter, reader)
        generator = torch.Generator().manual_seed(1)
        self.mel = torch.randn(ROWS, 80, 200, generator=generator)
        self.tokens = torch.randint(200, (ROWS, 12), generator=generator)
        self.slots.reset(0, [100, 50, 80], [1, 2, 3], [0.0, 0.7, 1.0])

    def prefilled(self) -> None:
        """Encode and prefill, eagerly."""
        self.phases.encode(self.mel, first=0, audio_len=100)
        self.phases.prefill(
            **self.prompt_tokens(), first=0, kv_len=64, encoder_len=100, sampled=True
        )

    def prompt_tokens(self) -> dict[str, Tensor]:
        """Inputs of a prefill with a text behind the opening."""
        return {
            "tokens": self.tokens,
            "openings": torch.tensor([4, 5, 6]),
            "starts": torch.tensor([0, 1, 2]),
            "candidates": self.tokens[:, 6:],
            "counts": torch.tensor([6, 0, 3]),
        }

    def block(self) -> dict[str, Tensor]:
        """Inputs of a verification, from the host and from the drafter."""
        return {
            "candidates": self.tokens[:, :4].clone(),
            "counts": torch.tensor([4, 4, 0]),
            "drafted": torch.tensor([False, True, False]),
        }

    def state(self) -> list[Tensor]:
        """All that a phase may change, live."""
        cache, slots = self.slots.cache, self.slots
        tensors = [slots.lengths, slots.anchors, slots.emitted, slots.states]
        tensors += [cache.self_keys, cache.self_values, cache.cross_keys, cache.cross_values]
        own = self.drafter._cache
        tensors += [own.self_keys, own.self_values, own.cross_keys, own.cross_values]
        return [*tensors, self.phases._drafted, self.phases._distribution]


Phase = tuple[Callable[[Bench], Callable[..., Any]], Callable[[Bench], dict[str, Tensor]], bool]
PHASES: dict[str, Phase] = {
    "encode": (
        lambda b: partial(b.phases.encode, first=2, audio_len=100),
        lambda b: {"mel": b.mel},
        False,
    ),
    "detect": (
        lambda b: partial(b.phases.detect, first=0, last=3, encoder_len=100),
        lambda _: {},
        True,
    ),
    "prefill": (
        lambda b: partial(b.phases.prefill, first=0, kv_len=64, encoder_len=100, sampled=True),
        Bench.prompt_tokens,
        False,
    ),
    "draft": (
        lambda b: partial(
            b.phases.draft, rows=3, count=4, kv_len=64, encoder_len=100, sampled=True
        ),
        lambda _: {},
        True,
    ),
    "verify": (
        lambda b: partial(b.phases.verify, kv_len=64, encoder_len=100, sampled=True),
        Bench.block,
        True,
    ),
    "verify greedily": (
        lambda b: partial(b.phases.verify, kv_len=64, encoder_len=100, sampled=False),
        Bench.block,
        True,
    ),
}


@pytest.mark.parametrize(
    "drafter", [tiny_drafter(block=4), tiny_speech_draft(block=4)], ids=["parallel", "speech"]
)
@pytest.mark.parametrize("name", PHASES)
@torch.no_grad()
def test_a_traced_phase_replays_the_eager_call(name: str, drafter: TrainedDrafter) -> None:
    """Tracing fails on host reads and data-dependent shapes; the graph then runs on other data."""
    make, inputs, prefilled = PHASES[name]
    eager, traced = Bench(drafter), Bench(drafter)
    for bench in (eager, traced):
        if prefilled:
            bench.prefilled()
        else:
            bench.phases.encode(bench.mel, first=0, audio_len=100)
    wanted = make(eager)(**inputs(eager))

    # Traced with other values than it is replayed with: nothing may be baked in.
    before = [tensor.clone() for tensor in traced.state()]
    values = inputs(traced)
    dummies = [torch.zeros_like(value) for value in values.values()]
    phase = make(traced)

    def flat(*tensors: Tensor) -> Any:
        return phase(**dict(zip(values, tensors, strict=True)))

    graph = make_fx(flat)(*dummies)
    for tensor, value in zip(traced.state(), before, strict=True):
        tensor.copy_(value)
    got = graph(*values.values())

    if wanted is not None:
        assert torch.allclose(got, wanted, atol=1e-5, equal_nan=True)
    for mine, theirs in zip(traced.state(), eager.state(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)
