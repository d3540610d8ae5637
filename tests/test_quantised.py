import random
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.checkpoints.load import load
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request, RequestOutput
from model.whisper.kernels import LinearGelu
from model.whisper.quantised import (
    MIXED_IN,
    QuantisedLinear,
    additive_mask,
    attend,
    missing_instructions,
    quantise,
    write_keys,
)
from tests.support.audio import needs_audio, recordings
from tests.support.oracles import drain, proposers, run_shuffled
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_drafters import tiny_drafter
from tests.support.utterances import GREEDY, WARM

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(
    bool(missing_instructions()), reason=f"this CPU lacks {' and '.join(missing_instructions())}"
)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def random_tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", [nn.Linear, LinearGelu])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (9,), (2, 3), (700,)])
def test_products_are_close(kind: type[nn.Linear], bias: bool, shape: tuple[int, ...]) -> None:
    """Within the rounding of 8 bits, for rows of any size, any number and leading dimensions."""
    linear = kind(96, 130, bias=bias)
    x = random_tensor(*shape, 96) * torch.logspace(-3, 3, shape[-1])[:, None]
    wanted, got = linear(x), QuantisedLinear(linear, behind_gelu=False)(x)
    assert got.shape == wanted.shape
    assert ((got - wanted).abs() <= 0.03 * x.abs().amax(-1, keepdim=True)).all()


def test_behind_a_gelu_most_steps_are_above_zero() -> None:
    """Half the error of steps spent alike on both signs, for the same input."""
    linear = nn.Linear(96, 130)
    x = functional.gelu(3 * random_tensor(50, 96))
    errors = [
        (QuantisedLinear(linear, behind_gelu=behind)(x) - linear(x)).square().mean().sqrt()
        for behind in (True, False)
    ]
    assert errors[0] < 0.7 * errors[1]


def test_a_network_is_quantised_throughout() -> None:
    """Nested layers, too, and which of them stand behind a GELU is noticed; norms stay."""
    linear, gelu = nn.Linear(16, 16), LinearGelu(16, 16)
    inner = nn.Sequential(gelu, nn.Linear(16, 16))
    module = nn.Sequential(linear, nn.LayerNorm(16), inner)
    x = random_tensor(5, 16)
    before = module(x)
    quantise(module)
    assert (module(x) - before).abs().max() < 0.05
    assert isinstance(module[1], nn.LayerNorm)
    made = [layer for layer in (module[0], *inner) if isinstance(layer, QuantisedLinear)]
    assert [layer.gelu for layer in made] == [False, True, False]
    assert [layer.signed for layer in made] == [True, True, False]


@pytest.mark.parametrize("width", [32, 512])
@pytest.mark.parametrize("behind_gelu", [False, True])
def test_company_changes_no_bit_of_a_row(width: int, behind_gelu: bool) -> None:
    """Any number of rows gives what each gives alone: chunks, tails and few-row kernels alike."""
    layer = QuantisedLinear(LinearGelu(width, 3 * width), behind_gelu=behind_gelu)
    x = random_tensor(600, width)
    whole = layer(x)
    for rows in (1, 2, 3, 5, 8, 9, 17, 33, 72, 255, 257):
        assert torch.equal(layer(x[40 : 40 + rows]), whole[40 : 40 + rows]), rows


def test_what_is_not_finite_stays_in_its_row() -> None:
    """Zeros give the bias; NaN and infinity give no number, and spare the neighbours."""
    layer = QuantisedLinear(nn.Linear(32, 48), behind_gelu=False)
    x = random_tensor(4, 32)
    alone = layer(x[3:])
    x[0], x[1, 5], x[2, 7] = 0.0, torch.nan, torch.inf
    out = layer(x)
    assert torch.equal(out[0], layer.bias)
    assert not out[1:3].isfinite().any()
    assert torch.equal(out[3:], alone)


def cached(rows: int, heads: int, positions: int, width: int) -> tuple[Tensor, Tensor]:
    """Keys and values as an int8 target caches them."""
    keys = torch.empty(rows, heads, width, positions, dtype=MIXED_IN).transpose(-1, -2)
    write_keys(keys, random_tensor(rows, heads, positions, width, seed=1))
    return keys, random_tensor(rows, heads, positions, width, seed=2).to(MIXED_IN)


def test_keys_are_written_as_they_are() -> None:
    keys, _ = cached(2, 3, 70, 16)
    assert torch.equal(keys, random_tensor(2, 3, 70, 16, seed=1).to(MIXED_IN))


@pytest.mark.parametrize("n", [1, 9, 40])
def test_attention_is_attention(n: int) -> None:
    """As float32 does it, but for bfloat16's rounding; with a mask, and without one."""
    q, (k, v) = random_tensor(2, 3, n, 64).to(MIXED_IN), cached(2, 3, 100, 64)
    seen = torch.arange(100) < torch.arange(30, 30 + n)[:, None]
    for mask in (None, seen[None, None]):
        wanted = functional.scaled_dot_product_attention(
            q.float(), k.float(), v.float(), attn_mask=mask
        )
        got = attend(q, k, v, None if mask is None else additive_mask(mask))
        assert (got - wanted).abs().max() < 0.03


@pytest.mark.parametrize("heads", [2, 6, 8])
@pytest.mark.parametrize("positions", [64, 1500])
def test_company_changes_no_bit_of_attention(heads: int, positions: int) -> None:
    q, (k, v) = random_tensor(3, heads, 70, 64).to(MIXED_IN), cached(3, heads, positions, 64)
    mask = additive_mask(torch.arange(positions) < positions - 7)[None, None, None]
    whole = attend(q, k, v, mask)
    for n in (1, 2, 3, 5, 9, 16, 17, 33):
        for rows in (slice(1, 2), slice(0, 2), slice(0, 3)):
            part = attend(q[rows, :, :n], k[rows], v[rows], mask)
            assert torch.equal(part, whole[rows, :, :n]), (n, rows)


@pytest.mark.parametrize("kv_len", [128, 192, 448, 458])
def test_positions_that_are_not_seen_change_no_bit(kv_len: int) -> None:
    """As text grows attention looks further, at the same text."""
    q, (k, v) = random_tensor(1, 8, 5, 64).to(MIXED_IN), cached(1, 8, 458, 64)

    def over(positions: int) -> Tensor:
        mask = additive_mask(torch.arange(positions) < 50)[None, None, None]
        return attend(q, k[:, :, :positions], v[:, :, :positions], mask)

    assert torch.equal(over(kv_len), over(64))


REQUESTS = [*GREEDY, *WARM]


@cache
def plain(request: Request) -> tuple[int, ...]:
    """Its tokens, one pass of the int8 target a token."""
    alone = Engine(CHECKPOINT, slots=1, proposer=lambda _: None, precision="int8")
    return transcribe(alone, [request])[0].tokens


PROPOSERS = proposers(plain, REQUESTS, CHECKPOINT.tokens.eot)


@pytest.mark.parametrize("block", [1, 4, 8])
@pytest.mark.parametrize("name", PROPOSERS)
@pytest.mark.parametrize("slots", [1, 4, 16])
def test_speculation_changes_no_token_of_the_int8_target(name: str, block: int, slots: int) -> None:
    """Its own greedy decoding is the reference; static shapes give other batches, not other tokens."""
    engine = Engine(
        CHECKPOINT,
        slots=slots,
        proposer=PROPOSERS[name],
        block=block,
        precision="int8",
        static=block == 4 and slots < 16,
    )
    for one in run_shuffled(engine, REQUESTS, random.Random(f"{name} {block} {slots}")):
        assert one.tokens == plain(one.request)


@pytest.mark.parametrize("slots", [1, 4])
def test_a_drafter_changes_no_greedy_token_of_the_int8_target(slots: int) -> None:
    """A network made for the checkpoint drafts for either of its targets."""
    engine = Engine(CHECKPOINT, slots=slots, drafter=tiny_drafter(), precision="int8")
    results = run_shuffled(engine, GREEDY, random.Random(slots))
    assert all(one.tokens == plain(one.request) for one in results)
    assert sum(one.accepted for one in results) > 0


def test_a_warm_engine_has_nothing_left_of_its_warm_up() -> None:
    """In any of its slots: attention to nothing there would be no number, and stay."""
    engine = Engine(CHECKPOINT, slots=4, drafter=tiny_drafter(), precision="int8")
    engine.warm_up()
    for request in GREEDY[:4]:
        engine.admit(request)
    for one in drain(engine):
        assert isinstance(one, RequestOutput), one
        assert one.tokens == plain(one.request)


@pytest.mark.real
@needs_audio
@pytest.mark.parametrize("name", ["oracle", "adversarial", "reuse"])
def test_speculation_changes_no_token_of_genuine_weights(name: str) -> None:
    """Full and fitted windows side by side, three rows at a time, in random order."""
    checkpoint = load("tiny.en")
    requests = [
        Request(one.audio(), language="en", fitted_window=bool(number % 2))
        for number, one in enumerate(recordings(under="librispeech_testother")[:6])
    ]
    alone = Engine(checkpoint, slots=1, proposer=lambda _: None, precision="int8")
    wanted = {one.request: one.tokens for one in transcribe(alone, requests)}
    proposer = proposers(wanted.__getitem__, requests, checkpoint.tokens.eot)[name]
    engine = Engine(checkpoint, slots=3, proposer=proposer, precision="int8")
    results = run_shuffled(engine, requests, random.Random(name))
    assert all(one.tokens == wanted[one.request] for one in results)
