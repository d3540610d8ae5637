"""Speculation through the engine: proposers and drafters, blocks, limits and batches change no token."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from model.drafting.drafter_files import TrainedDrafter
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from tests.support.oracles import chi_square, run_shuffled
from tests.support.references import PROPOSERS, plain
from tests.support.tiny import CHECKPOINT, tiny_checkpoint
from tests.support.tiny_drafters import both_drafters
from tests.support.utterances import GREEDY, WARM, noise


@pytest.mark.parametrize(
    ("block", "slots", "static"),
    [(block, slots, False) for block in (1, 2, 4, 8) for slots in (1, 2, 4, 8, 16)]
    + [(8, slots, True) for slots in (1, 3, 9)],
)
@pytest.mark.parametrize("name", PROPOSERS)
def test_speculation_changes_no_token(name: str, block: int, slots: int, static: bool) -> None:
    """Any proposer, any block, any batch, any order: the tokens are plain greedy decoding's.

    For text that is proposed as such this holds at temperatures above 0, too: a point mass is
    accepted exactly when plain sampling would have drawn it. Static shapes have padded buckets, staged
    prefills and moved slots, as graphs need them.
    """
    engine = Engine(CHECKPOINT, slots=slots, proposer=PROPOSERS[name], block=block, static=static)
    for one in run_shuffled(engine, GREEDY + WARM, random.Random(f"{name} {block} {slots}")):
        assert one.tokens == plain(one.request)
        assert one.accepted <= one.proposed
        # Each pass, the prefill included, gives one token of the target's own, or the accepted end.
        own = len(one.tokens) - one.accepted
        assert own in (one.rounds, one.rounds + 1)
        if name == "perfect":
            assert one.accepted == one.proposed


CUT = tuple(range(0, 200, 2))


@both_drafters
@pytest.mark.parametrize("vocabulary", [None, CUT], ids=["full", "cut"])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("slots", [1, 2, 4, 8])
def test_a_drafter_changes_no_greedy_token(
    drafter: Callable[..., TrainedDrafter],
    vocabulary: tuple[int, ...] | None,
    static: bool,
    slots: int,
) -> None:
    """The network proposes, alone and behind a text that has run off; the target decides."""
    engine = Engine(
        CHECKPOINT,
        slots=slots,
        drafter=drafter(vocabulary),
        proposer=PROPOSERS["reuse"] if slots % 2 else lambda _: None,
        static=static,
    )
    results = run_shuffled(engine, GREEDY, random.Random(slots))
    assert all(one.tokens == plain(one.request) for one in results)
    assert sum(one.proposed - one.reused for one in results) > 0


@both_drafters
@pytest.mark.parametrize("block", [1, 2, 3])
def test_a_short_block_changes_no_greedy_token(
    drafter: Callable[..., TrainedDrafter], block: int
) -> None:
    """Of the engine's or of the drafter's making: fewer candidates than the other could take."""
    for trained, most in ((drafter(block=block), 8), (drafter(), block)):
        engine = Engine(CHECKPOINT, slots=3, drafter=trained, block=most)
        results = run_shuffled(engine, GREEDY, random.Random(block))
        assert all(one.tokens == plain(one.request) for one in results)
        assert sum(one.proposed for one in results) > 0


@both_drafters
def test_a_sampled_row_with_a_drafter_follows_from_its_seed_alone(
    drafter: Callable[..., TrainedDrafter],
) -> None:
    """Company, order and what was said before change nothing; the distribution is tested apart."""
    wanted = {request: plain(request) for request in GREEDY}
    for request in WARM:
        (one,) = transcribe(Engine(CHECKPOINT, slots=1, drafter=drafter()), [request])
        wanted[request] = one.tokens
    for static in (False, True):
        engine = Engine(
            CHECKPOINT, slots=5, drafter=drafter(), proposer=PROPOSERS["reuse"], static=static
        )
        for one in run_shuffled(engine, WARM + GREEDY, random.Random(static)):
            assert one.tokens == wanted[one.request]


SHORT = tiny_checkpoint(max_target_positions=16)


def first_tokens(drafter: TrainedDrafter | None, seeds: range) -> Counter[tuple[int, ...]]:
    """How often each pair of first tokens is drawn at T = 1, over many seeds in full batches."""
    engine = Engine(SHORT, slots=16, drafter=drafter)
    drawn = transcribe(
        engine, [Request(noise(5), language="en", temperature=1.0, seed=seed) for seed in seeds]
    )
    if drafter is not None:
        assert sum(one.accepted for one in drawn) > len(seeds), "the drafter must have a say"
    return Counter(one.tokens[1:3] for one in drawn)


@both_drafters
def test_sampling_through_a_drafter_has_the_targets_distribution(
    drafter: Callable[..., TrainedDrafter],
) -> None:
    """The whole engine at T = 1: tokens behind the prefill's, drafted and plain, by chi-square."""
    draws = 1_500
    plain = first_tokens(None, range(draws))
    drafted = first_tokens(drafter(checkpoint=SHORT, block=4), range(draws, 2 * draws))
    p, outcomes = chi_square(plain, drafted, least=20)
    assert outcomes > 11
    assert p > 1e-4


def test_a_right_text_needs_no_rounds() -> None:
    """The whole of a previous hypothesis is verified in the prefill pass itself."""
    again = [replace(request, draft_tokens=plain(request)) for request in GREEDY]
    for one, request in zip(transcribe(Engine(CHECKPOINT, slots=4), again), GREEDY, strict=True):
        assert one.tokens == plain(request)
        assert one.rounds == 0
        assert one.reused == one.accepted >= len(one.tokens) - 1


@pytest.mark.parametrize("name", ["none", "perfect"])
@pytest.mark.parametrize("max_new_tokens", [1, 2, 3])
def test_max_new_tokens_is_kept(name: str, max_new_tokens: int) -> None:
    asked = {replace(request, max_new_tokens=max_new_tokens): request for request in GREEDY[:4]}
    engine = Engine(CHECKPOINT, slots=2, proposer=lambda one: PROPOSERS[name](asked[one]))
    for one in transcribe(engine, asked):
        assert one.tokens == plain(asked[one.request])[:max_new_tokens]


@pytest.mark.parametrize("block", [0, 1])
def test_limits_and_blocks_at_their_least(block: int) -> None:
    """A prompt that fills its half of the context, blocks of none or one."""
    full = [replace(request, prompt="x" * 99) for request in GREEDY[1::2]]
    plain = transcribe(Engine(CHECKPOINT, slots=1, proposer=lambda _: None), full)
    engine = Engine(CHECKPOINT, slots=2, proposer=PROPOSERS["random"], block=block)
    results = transcribe(engine, full)
    assert [one.tokens for one in results] == [one.tokens for one in plain]
