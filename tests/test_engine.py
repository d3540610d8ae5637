import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.engine import Engine, Failure, Hypothesis, Request
from model.load import ModelError
from model.load import load as load_checkpoint
from tests.tiny import changed, tiny_checkpoint

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


def test_output_that_is_not_finite_fails_that_request_alone() -> None:
    """A row whose logits are NaN becomes a Failure; its neighbours' tokens are unchanged.

    Real weights never do this to one row alone, so its slot is poisoned after the prefill.
    """
    engine = Engine(CHECKPOINT, slots=3)
    for request in REQUESTS[:3]:
        engine.admit(request)
    results = engine.step()
    victim = REQUESTS[1]
    assert all(result.request is not victim for result in results)
    engine.cache.cross_values[:, 1] = torch.nan
    while engine.occupied:
        results += engine.step()
    for result in results:
        if result.request is victim:
            assert isinstance(result, Failure)
            assert "not finite" in result.message
        else:
            assert isinstance(result, Hypothesis)
            assert result.tokens == ALONE[id(result.request)].tokens
    # The slot is clean for the next one: nothing of the poison is read.
    (again,) = engine.transcribe([victim])
    assert again.tokens == ALONE[id(victim)].tokens


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
