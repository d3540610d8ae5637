import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.checkpoints.load import Checkpoint, ModelError
from model.checkpoints.load import load as load_checkpoint
from model.drafting.drafter_files import TrainedDrafter
from model.drafting.parallel import Architecture, from_target, spread_aux_layers
from model.drafting.previous_text import PreviousText, Proposer
from model.drafting.speech_draft import SpeechArchitecture
from model.drafting.speech_draft import from_target as speech_from_target
from model.engine import runner
from model.engine.engine import Engine
from model.engine.requests import Failure, Hypothesis, Request
from model.whisper.network import Whisper
from tests.support.oracles import Adversary, Guesser, Oracle, run_shuffled
from tests.support.tiny import changed, tiny_checkpoint

CHECKPOINT = tiny_checkpoint()


def noise(seed: int, samples: int = 8000) -> NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(-1, 1, samples).astype(np.float32)


REQUESTS = [
    Request(
        noise(i, 2 + 1500 * i),
        language=("en", None, ("de", "es"))[i % 3],
        prompt=("", "as before")[i % 2],
        temperature=(0.0, 0.8)[i % 4 == 3],
        seed=i,
    )
    for i in range(12)
]


def alone(request: Request) -> Hypothesis:
    (result,) = Engine(CHECKPOINT, slots=1).transcribe([request])
    return result


ALONE = {id(request): alone(request) for request in REQUESTS}


def test_transcripts_vary_and_end() -> None:
    """The tiny model is worth testing with: texts differ, some end, some reach the budget."""
    results = list(ALONE.values())
    assert len({result.tokens for result in results}) == len(results)
    lengths = {len(result.tokens) for result in results}
    assert len(lengths) > 2
    eot = CHECKPOINT.tokens.eot
    assert all((r.tokens[-1] == eot) != (len(r.tokens) == 32) for r in results)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 5))
def test_order_and_company_change_nothing(order: random.Random, slots: int) -> None:
    """Any arrival order, any number of slots, joining and leaving: the tokens are those alone."""
    engine = Engine(CHECKPOINT, slots=slots)
    waiting = order.sample(REQUESTS, k=8)
    results: list[Hypothesis | Failure] = []
    while waiting or engine.occupied:
        while waiting and engine.occupied < slots and order.random() < 0.7:
            engine.admit(waiting.pop())
        results += engine.step()
    assert len(results) == 8
    for result in results:
        assert isinstance(result, Hypothesis)
        wanted = ALONE[id(result.request)]
        assert result.tokens == wanted.tokens
        assert result.language == wanted.language
        assert result.mean_logprob == pytest.approx(wanted.mean_logprob, abs=1e-4)
        assert result.no_speech == pytest.approx(wanted.no_speech, abs=1e-5)


def test_transcribe_keeps_the_order() -> None:
    """More requests than slots come back in the order they were given."""
    results = Engine(CHECKPOINT, slots=3).transcribe(REQUESTS)
    assert [result.request for result in results] == REQUESTS


def test_seeds_decide_what_is_sampled() -> None:
    """The same seed gives the same text, another seed another one."""
    hot = replace(REQUESTS[0], temperature=1.0)
    assert alone(hot).tokens == alone(replace(hot)).tokens
    assert alone(hot).tokens != alone(replace(hot, seed=77)).tokens


def test_a_language_is_detected_among_those_given() -> None:
    """Given: no probability; detected: the likeliest of the set, which is renormalised."""
    audio = noise(3)
    given_one = alone(Request(audio, language="de"))
    assert (given_one.language, given_one.language_probability) == ("de", None)
    every = alone(Request(audio))
    assert every.language_probability is not None
    others = tuple(sorted({"en", "de", "es"} - {every.language}))
    pair = alone(Request(audio, language=others))
    assert pair.language in others
    assert pair.language_probability is not None
    assert pair.language_probability >= 0.5


def test_an_english_only_model_needs_no_language() -> None:
    """It opens without language and task, and refuses others."""
    engine = Engine(tiny_checkpoint(multilingual=False), slots=1)
    (result,) = engine.transcribe([Request(noise(1))])
    assert (result.language, result.language_probability) == ("en", None)
    (result,) = engine.transcribe([Request(noise(1), language=("en", "en"))])
    assert (result.language, result.language_probability) == ("en", None)
    with pytest.raises(ValueError, match="does not know the language de"):
        engine.admit(Request(noise(1), language="de"))
    with pytest.raises(ValueError, match="cannot translate"):
        engine.admit(Request(noise(1), task="translate"))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Request(noise(0), language="xx"), "does not know the language xx; it knows de, en, es"),
        (Request(noise(0), language=("en", "qq")), "does not know the language qq"),
        (Request(noise(0), task="sing"), "task is transcribe or translate"),  # type: ignore[arg-type]  # the point
        (Request(noise(0), temperature=-0.1), "temperature"),
        (Request(noise(0), temperature=float("nan")), "temperature"),
        (Request(noise(0), temperature=float("inf")), "temperature"),
        (Request(noise(0), seed=2**63), "seed"),
        (Request(noise(0), draft_tokens=(5, 9_999)), "previous tokens are ids below"),
        (Request(noise(0), draft_tokens=(-1,)), "previous tokens are ids below"),
        (Request(noise(0, 0)), "an utterance is 2 to 32000"),
        (Request(noise(0, 1)), "an utterance is 2 to 32000"),
        (Request(noise(0, 32_001)), "an utterance is 2 to 32000"),
        (Request(noise(0).reshape(2, -1)), "float32 samples"),
        (Request(noise(0).astype(np.float64)), "float32 samples"),
        (Request(np.array([0.0, np.nan, 1.0], np.float32)), "NaN"),
        (Request(np.array([0.0, np.inf], np.float32)), "infinite"),
    ],
)
def test_a_bad_request_is_refused_in_words_and_costs_the_others_nothing(
    bad: Request, words: str
) -> None:
    engine = Engine(CHECKPOINT, slots=2)
    engine.admit(REQUESTS[0])
    with pytest.raises(ValueError, match=words):
        engine.admit(bad)
    assert engine.occupied == 1
    results = []
    while engine.occupied:
        results += engine.step()
    assert [r.tokens for r in results if isinstance(r, Hypothesis)] == [
        ALONE[id(REQUESTS[0])].tokens
    ]


def test_no_more_than_the_slots_are_admitted() -> None:
    engine = Engine(CHECKPOINT, slots=1)
    engine.admit(REQUESTS[0])
    with pytest.raises(RuntimeError, match="all 1 slots are occupied"):
        engine.admit(REQUESTS[1])


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("slots", [1, 3])
def test_output_that_is_not_finite_fails_that_request_alone(slots: int, static: bool) -> None:
    """A row whose logits are NaN becomes a Failure; its neighbours' tokens are unchanged.

    Real weights never do this to one row alone, so that the last slot is poisoned after its
    prefill. Behind a mask NaN is NaN still: the slot must be clean for the next utterance.
    """
    engine = Engine(CHECKPOINT, slots=slots, static=static)
    others, victim = REQUESTS[: slots - 1], REQUESTS[4]
    for request in [*others, victim]:
        engine.admit(request)
    results = engine.step()
    assert all(result.request is not victim for result in results)
    slot = len(engine._rows) - 1
    cache = engine.runner.state.cache
    for tensor in (cache.cross_values, cache.self_keys, cache.self_values):
        tensor[:, slot] = torch.nan
    while engine.occupied:
        results += engine.step()
    for result in results:
        if result.request is victim:
            assert isinstance(result, Failure)
            assert "not finite" in result.message
        else:
            assert isinstance(result, Hypothesis)
            assert result.tokens == ALONE[id(result.request)].tokens
    again = engine.transcribe([*others, victim])
    assert [one.tokens for one in again] == [ALONE[id(one.request)].tokens for one in again]


def test_broken_weights_fail_every_request_in_words() -> None:
    """Transcribe raises what step would return."""
    poison = changed(CHECKPOINT.weights, "decoder.norm.bias", lambda bias: bias.fill_(torch.nan))
    engine = Engine(replace(CHECKPOINT, weights=poison), slots=1)
    with pytest.raises(ValueError, match="not finite"):
        engine.transcribe([REQUESTS[0]])


def test_cancelled_work_leaves_no_result() -> None:
    """Before its first step and in mid-flight; the others go on."""
    engine = Engine(CHECKPOINT, slots=3)
    for request in REQUESTS[4:7]:
        engine.admit(request)
    engine.cancel(REQUESTS[5])
    results = engine.step()
    engine.cancel(REQUESTS[4])
    engine.cancel(REQUESTS[4])
    while engine.occupied:
        results += engine.step()
    assert [result.request for result in results] == [REQUESTS[6]]
    assert isinstance(results[0], Hypothesis)
    assert results[0].tokens == ALONE[id(REQUESTS[6])].tokens


def test_a_long_prompt_is_cut_from_the_front() -> None:
    """Only the last half context counts, as in Whisper."""
    audio = noise(9)
    long = alone(Request(audio, language="en", prompt="x" * 500 + "the end of the prompt"))
    same = alone(
        Request(audio, language="en", prompt="y" * 500 + "x" * 200 + "the end of the prompt")
    )
    assert long.tokens == same.tokens


def test_warm_up_leaves_the_slots_free() -> None:
    engine = Engine(CHECKPOINT, slots=2)
    engine.warm_up()
    assert engine.occupied == 0


def test_an_unknown_model_is_an_error_in_words() -> None:
    with pytest.raises(ModelError, match="there is no model 'enormous'"):
        load_checkpoint("enormous")


GREEDY = [
    Request(noise(100 + i, 2 + 1200 * i), language="en", prompt=("", "before")[i % 2])
    for i in range(12)
]
WARM = [replace(request, temperature=0.7, seed=i) for i, request in enumerate(GREEDY[::2])]


def plainly(requests: list[Request]) -> dict[int, tuple[int, ...]]:
    """Each request's tokens, one target pass a token."""
    results = Engine(CHECKPOINT, slots=1, proposer=lambda _: None).transcribe(requests)
    return {id(one.request): one.tokens for one in results}


PLAIN = plainly(GREEDY + WARM)
EOT = CHECKPOINT.tokens.eot
PROPOSERS: dict[str, Callable[[Request], Proposer | None]] = {
    "none": lambda _: None,
    "oracle": lambda request: Oracle(PLAIN[id(request)], acceptance=0.575),
    "perfect": lambda request: Oracle(PLAIN[id(request)], acceptance=1.0),
    "random": lambda _: Guesser(EOT),
    "adversarial": lambda request: Adversary(PLAIN[id(request)], EOT),
    "reuse": lambda request: PreviousText(PLAIN[id(GREEDY[len(request.audio) // 1200 // 2])]),
}


@pytest.mark.parametrize("block", [1, 2, 4, 8])
@pytest.mark.parametrize("name", PROPOSERS)
@pytest.mark.parametrize("slots", [1, 2, 4, 8, 16])
def test_speculation_changes_no_token(name: str, block: int, slots: int) -> None:
    """Any proposer, any block, any batch, any order: the tokens are plain greedy decoding's.

    For text that is proposed as such this holds at temperatures above 0, too: a point mass is
    accepted exactly when plain sampling would have drawn it.
    """
    engine = Engine(CHECKPOINT, slots=slots, proposer=PROPOSERS[name], block=block)
    for one in run_shuffled(engine, GREEDY + WARM, random.Random(f"{name} {block} {slots}")):
        assert one.tokens == PLAIN[id(one.request)]
        assert one.accepted <= one.proposed
        # Each pass, the prefill included, gives one token of the target's own, or the accepted end.
        own = len(one.tokens) - one.accepted
        assert own in (one.rounds, one.rounds + 1)
        if name == "perfect":
            assert one.accepted == one.proposed


@pytest.mark.parametrize("slots", [1, 3, 9])
@pytest.mark.parametrize("name", ["none", "oracle", "reuse"])
def test_static_shapes_change_no_token(name: str, slots: int) -> None:
    """Padded buckets, staged prefills and moved slots, as graphs need them, run on the CPU too."""
    engine = Engine(CHECKPOINT, slots=slots, proposer=PROPOSERS[name], static=True)
    for one in run_shuffled(engine, GREEDY + WARM, random.Random(slots)):
        assert one.tokens == PLAIN[id(one.request)]


CUT = tuple(range(0, 200, 2))


def tiny_drafter(
    vocabulary: tuple[int, ...] | None = None,
    *,
    checkpoint: Checkpoint = CHECKPOINT,
    block: int = 8,
) -> TrainedDrafter:
    """Untrained, but begun from the target's own blocks, so that some proposals hold."""
    torch.manual_seed(3)
    architecture = Architecture(2, block, spread_aux_layers(2), vocabulary)
    network = from_target(whisper_of(checkpoint), architecture, blocks=(0, 1))
    return TrainedDrafter("tiny", network, (0.5,) * block)


def tiny_speech_draft(
    vocabulary: tuple[int, ...] | None = None,
    *,
    checkpoint: Checkpoint = CHECKPOINT,
    block: int = 8,
) -> TrainedDrafter:
    """The same, but autoregressive."""
    architecture = SpeechArchitecture(block, (0, 1), vocabulary)
    network = speech_from_target(whisper_of(checkpoint), architecture, block=1)
    return TrainedDrafter("tiny", network, (0.5,) * block)


def whisper_of(checkpoint: Checkpoint) -> Whisper:
    return Whisper.from_weights(
        checkpoint.config, checkpoint.weights, torch.device("cpu"), torch.float32
    )


both_drafters = pytest.mark.parametrize(
    "drafter", [tiny_drafter, tiny_speech_draft], ids=["parallel", "speech"]
)


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
    assert all(one.tokens == PLAIN[id(one.request)] for one in results)
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
        assert all(one.tokens == PLAIN[id(one.request)] for one in results)
        assert sum(one.proposed for one in results) > 0


@both_drafters
def test_a_sampled_row_with_a_drafter_follows_from_its_seed_alone(
    drafter: Callable[..., TrainedDrafter],
) -> None:
    """Company, order and what was said before change nothing; the distribution is tested apart."""
    alone = {}
    for request in WARM:
        (one,) = Engine(CHECKPOINT, slots=1, drafter=drafter()).transcribe([request])
        alone[id(request)] = one.tokens
    for static in (False, True):
        engine = Engine(
            CHECKPOINT,
            slots=5,
            drafter=drafter(),
            proposer=PROPOSERS["reuse"],
            static=static,
        )
        for one in run_shuffled(engine, WARM + GREEDY, random.Random(static)):
            wanted = PLAIN | alone
            assert one.tokens == wanted[id(one.request)]


SHORT = tiny_checkpoint(max_target_positions=16)


def first_tokens(drafter: TrainedDrafter | None, seeds: range) -> Counter[tuple[int, ...]]:
    """How often each pair of first tokens is drawn at T = 1, over many seeds in full batches."""
    engine = Engine(SHORT, slots=16, drafter=drafter)
    drawn = engine.transcribe(
        Request(noise(5), language="en", temperature=1.0, seed=seed) for seed in seeds
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
    common = [pair for pair, n in (plain + drafted).items() if n >= 20]
    assert len(common) > 10
    chi2 = sum(
        (plain[pair] - drafted[pair]) ** 2 / (plain[pair] + drafted[pair]) for pair in common
    )
    rest = [sum(c.values()) - sum(c[pair] for pair in common) for c in (plain, drafted)]
    chi2 += (rest[0] - rest[1]) ** 2 / sum(rest)
    p = torch.special.gammaincc(torch.tensor(len(common) / 2), torch.tensor(chi2 / 2))
    assert p > 1e-4


def test_a_right_text_needs_no_rounds() -> None:
    """The whole of a previous hypothesis is verified in the prefill pass itself."""
    again = [replace(request, draft_tokens=PLAIN[id(request)]) for request in GREEDY]
    for one, request in zip(Engine(CHECKPOINT, slots=4).transcribe(again), GREEDY, strict=True):
        assert one.tokens == PLAIN[id(request)]
        assert one.rounds == 0
        assert one.reused == one.accepted >= len(one.tokens) - 1


class Exhausted:
    """A phase that needs more memory than there is for more than `most` rows."""

    def __init__(self, phase: Callable[..., Any], most: int, rows: Callable[..., int]) -> None:
        self.phase, self.most, self.rows = phase, most, rows
        self.__name__ = "exhausted"

    def __call__(self, *args: Any, **arguments: Any) -> Any:
        if self.rows(**arguments) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.phase(*args, **arguments)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("name", ["encode", "verify"])
def test_when_memory_runs_out_the_batch_is_split_and_nothing_is_lost(
    name: str, most: int, static: bool
) -> None:
    """Prefills and rounds of too many rows are retried with fewer; every final comes, unchanged."""
    engine = Engine(CHECKPOINT, slots=8, proposer=PROPOSERS["oracle"], static=static)
    phases = engine.runner._phases
    rows = {"encode": lambda mel, **_: len(mel), "verify": lambda candidates, **_: len(candidates)}
    monkey = Exhausted(getattr(phases, name), most, rows[name])
    setattr(phases, name, monkey)
    for request in GREEDY[:8]:
        engine.admit(request)
    results: list[Hypothesis | Failure] = []
    while engine.occupied:
        results += engine.step()
    assert len(results) == 8
    for one in results:
        assert isinstance(one, Hypothesis)
        assert one.tokens == PLAIN[id(one.request)]
    if name == "verify":
        assert engine.slots <= most, "new work is taken only as far as it fits"


def test_the_drafter_is_given_up_before_a_request_is() -> None:
    """Its memory is freed, and what it drafted for goes on without it."""
    engine = Engine(CHECKPOINT, slots=2, drafter=tiny_drafter())

    def encode(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    assert engine.runner.drafter is not None
    engine.runner.drafter.encode = encode  # type: ignore[assignment, method-assign]  # the fault to survive
    results = engine.transcribe(GREEDY[:4])
    assert [one.tokens for one in results] == [PLAIN[id(one.request)] for one in results]
    assert engine.drafter is None


def test_a_request_that_never_fits_fails_alone() -> None:
    """In words, and the engine lives on."""
    engine = Engine(CHECKPOINT, slots=2)
    phases = engine.runner._phases
    real = phases.encode
    setattr(phases, "encode", Exhausted(real, 0, lambda mel, **_: len(mel)))  # noqa: B010
    engine.admit(GREEDY[0])
    (failure,) = engine.step()
    assert isinstance(failure, Failure)
    assert "memory is exhausted" in failure.message
    phases.encode = real  # type: ignore[method-assign]  # there is memory again
    (result,) = engine.transcribe([GREEDY[1]])
    assert result.tokens == PLAIN[id(GREEDY[1])]


@pytest.mark.parametrize("static", [False, True])
def test_a_row_that_waits_for_memory_loses_no_token(static: bool) -> None:
    """Of three rows two go on when memory has run out; shapes are then those of two."""
    engine = Engine(CHECKPOINT, slots=4, proposer=PROPOSERS["oracle"], static=static)
    phases = engine.runner._phases
    real = phases.encode
    for request in GREEDY[:3]:
        engine.admit(request)
    results = engine.step()
    setattr(phases, "encode", Exhausted(real, 0, lambda mel, **_: len(mel)))  # noqa: B010
    engine.admit(GREEDY[3])
    results += engine.step()
    phases.encode = real  # type: ignore[method-assign]  # there is memory again
    while engine.occupied:
        results += engine.step()
    assert len(results) == 4
    assert sum(isinstance(one, Failure) for one in results) == 1
    for one in results:
        if isinstance(one, Hypothesis):
            assert one.tokens == PLAIN[id(one.request)]


def test_no_text_is_lost_for_the_times_of_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that finds those may find no memory; rows that end in the same round are answered."""
    tries = []

    def exhausted(*_: object) -> None:
        tries.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("model.engine.engine.align", exhausted)
    engine = Engine(CHECKPOINT, slots=4)
    asked = [replace(request, words=True) for request in GREEDY[:4]]
    for one, request in zip(engine.transcribe(asked), GREEDY[:4], strict=True):
        assert one.tokens == PLAIN[id(request)]
        assert one.timed is None
    assert len(tries) == 4


def test_what_is_refused_leaves_nothing_behind() -> None:
    """Not even what was to be decoded along with it."""
    engine = Engine(CHECKPOINT, slots=2)
    with pytest.raises(ValueError, match="temperature"):
        engine.transcribe([GREEDY[0], replace(GREEDY[1], temperature=9.0)])
    assert not engine.occupied


@pytest.mark.parametrize("name", ["none", "perfect"])
@pytest.mark.parametrize("max_new_tokens", [1, 2, 3])
def test_a_budget_is_kept(name: str, max_new_tokens: int) -> None:
    """Whatever is proposed; of none at all nothing could come."""
    asked = {replace(request, max_new_tokens=max_new_tokens): request for request in GREEDY[:4]}
    engine = Engine(CHECKPOINT, slots=2, proposer=lambda one: PROPOSERS[name](asked[one]))
    for one in engine.transcribe(asked):
        assert one.tokens == PLAIN[id(asked[one.request])][:max_new_tokens]
    with pytest.raises(ValueError, match="a budget is 1 token or more"):
        engine.check(replace(GREEDY[0], max_new_tokens=0))


@pytest.mark.parametrize("block", [0, 1])
def test_budgets_and_blocks_at_their_least(block: int) -> None:
    """A prompt that fills its half of the context, blocks of none or one."""
    full = [replace(request, prompt="x" * 99) for request in GREEDY[1::2]]
    plain = Engine(CHECKPOINT, slots=1, proposer=lambda _: None).transcribe(full)
    engine = Engine(CHECKPOINT, slots=2, proposer=PROPOSERS["random"], block=block)
    results = engine.transcribe(full)
    assert [one.tokens for one in results] == [one.tokens for one in plain]


@pytest.mark.parametrize("slots", [0, 97])
def test_slots_have_bounds(slots: int) -> None:
    with pytest.raises(ValueError, match=r"slots lie in 1 … 96"):
        Engine(CHECKPOINT, slots=slots)


@both_drafters
def test_a_drafter_that_is_never_right_is_left_alone(
    drafter: Callable[..., TrainedDrafter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first rounds the pace chooses plain passes, but for a probe now and then."""

    def second(work: Callable[[], object]) -> float:
        """Every pass takes as long as any other: what is measured on a busy machine is anything."""
        work()
        return 1.0

    monkeypatch.setattr(runner, "median_seconds", second)
    engine = Engine(CHECKPOINT, slots=1, drafter=drafter())
    engine.warm_up()
    draft_length = engine._draft_length
    assert draft_length is not None
    for _ in range(500):
        draft_length.learn(8, 0)
    assert sum(draft_length.choose(1) > 0 for _ in range(200)) <= 200 / 40 + 1
