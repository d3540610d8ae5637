"""Every phase can be captured: traced on the CPU, its graph is the eager call."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from model.drafting.drafter_files import TrainedDrafter
from model.engine import phases
from model.engine.graphs import PhaseInputs
from model.whisper.slots import Slots
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import tiny_drafter, tiny_speech_draft, whisper_of

ROWS = 3
GENERATOR = torch.Generator().manual_seed(1)
MEL = torch.randn(ROWS, 80, 200, generator=GENERATOR)
TOKENS = torch.randint(200, (ROWS, 12), generator=GENERATOR)


class Bench:
    """Phases over fresh slots, always in the same state."""

    def __init__(self, drafter: TrainedDrafter) -> None:
        whisper = whisper_of(CHECKPOINT)
        self.slots = Slots.allocate(whisper, 8, block=4)
        bias = CHECKPOINT.tokens.bias(first=False)
        self.drafter = drafter.over_slots(whisper, bias, 8, packed=False)
        self.phases = phases.Phases(whisper, CHECKPOINT.tokens, self.slots, self.drafter)
        self.slots.reset(0, [100, 50, 80], [1, 2, 3], [0.0, 0.7, 1.0])
        self.phases.encode(phases.EncodeInputs(MEL, first=0, audio_len=100))

    def state(self) -> list[Tensor]:
        """All that a phase may change, live."""
        cache, slots = self.slots.cache, self.slots
        tensors = [slots.lengths, slots.anchors, slots.emitted, slots.states]
        tensors += [cache.self_keys, cache.self_values, cache.cross_keys, cache.cross_values]
        own = self.drafter.cache
        tensors += [own.self_keys, own.self_values, own.cross_keys, own.cross_values]
        return [*tensors, self.phases.drafted.tokens, self.phases.drafted.distribution]


# With a text behind each prompt.
PREFILL = phases.PrefillInputs(
    tokens=TOKENS,
    prompt_lens=torch.tensor([4, 5, 6]),
    starts=torch.tensor([0, 1, 2]),
    candidates=TOKENS[:, 6:],
    counts=torch.tensor([6, 0, 3]),
    first=0,
    kv_len=64,
    encoder_len=100,
    sampled=True,
)
# From the host and from the drafter.
VERIFY = phases.VerifyInputs(
    candidates=TOKENS[:, :4],
    counts=torch.tensor([4, 4, 0]),
    drafted=torch.tensor([False, True, False]),
    kv_len=64,
    encoder_len=100,
    sampled=True,
)


DRAFT = phases.DraftInputs(rows=3, count=4, kv_len=64, audio_len=100, sampled=True)
# By name: the phase, its inputs, and whether it works on rows that have a transcript.
CASES: dict[str, tuple[str, PhaseInputs, bool]] = {
    "encode": ("encode", phases.EncodeInputs(MEL, first=2, audio_len=100), False),
    "detect": ("detect", phases.DetectInputs(first=0, last=3, encoder_len=100), True),
    "prefill": ("prefill", PREFILL, False),
    "draft": ("draft", DRAFT, True),
    "verify": ("verify", VERIFY, True),
    "verify greedily": ("verify", replace(VERIFY, sampled=False), True),
}


@pytest.mark.parametrize("drafter", [tiny_drafter, tiny_speech_draft], ids=["parallel", "speech"])
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_a_traced_phase_replays_the_call(name: str, drafter: Callable[..., TrainedDrafter]) -> None:
    """Tracing fails on host reads and data-dependent shapes; the graph then runs on other data."""
    (phase_name, inputs, prefilled), trained = CASES[name], drafter(block=4)
    eager, traced = Bench(trained), Bench(trained)
    if prefilled:
        for bench in (eager, traced):
            bench.phases.prefill(PREFILL)
    values = [value.clone() for value in inputs.tensors().values()]
    names = list(inputs.tensors())
    copies = {n: v.clone() for n, v in inputs.tensors().items()}
    wanted = getattr(eager.phases, phase_name)(replace(inputs, **copies))

    # Traced with other values than it is replayed with: nothing may be baked in.
    before = [tensor.clone() for tensor in traced.state()]
    phase = getattr(traced.phases, phase_name)

    def flat(*tensors: Tensor) -> Any:
        return phase(replace(inputs, **dict(zip(names, tensors, strict=True))))

    graph = make_fx(flat)(*(torch.zeros_like(value) for value in values))
    for tensor, value in zip(traced.state(), before, strict=True):
        tensor.copy_(value)
    got = graph(*values)

    if wanted is not None:
        assert torch.allclose(got, wanted, atol=1e-5, equal_nan=True)
    for mine, theirs in zip(traced.state(), eager.state(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)
