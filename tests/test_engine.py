import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Failure, Request, RequestOutput
from tests.support.oracles import drain, run_shuffled
from tests.support.references import alone
from tests.support.tiny import CHECKPOINT, tiny_checkpoint
from tests.support.utterances import REQUESTS, noise


def test_transcripts_vary_and_end() -> None:
    """The tiny model is worth testing with: texts differ, some end, some reach max_new_tokens."""
    results = [alone(request) for request in REQUESTS]
    assert len({result.tokens for result in results}) == len(results)
    lengths = {len(result.tokens) for result in results}
    assert len(lengths) > 2
    eot = CHECKPOINT.tokens.eot
    assert all((r.tokens[-1] == eot) != (len(r.tokens) == 32) for r in results)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 5))
def test_order_and_company_change_nothing(order: random.Random, slots: int) -> None:
    """Any arrival order, any number of slots, joining and leaving: the tokens are those alone."""
    for result in run_shuffled(Engine(CHECKPOINT, slots=slots), order.sample(REQUESTS, k=8), order):
        wanted = alone(result.request)
        assert result.tokens == wanted.tokens
        assert result.language == wanted.language
        assert result.mean_logprob == pytest.approx(wanted.mean_logprob, abs=1e-4)
        assert result.no_speech == pytest.approx(wanted.no_speech, abs=1e-5)


def test_seeds_decide_what_is_sampled() -> None:
    hot = replace(REQUESTS[0], temperature=1.0)
    assert alone(hot).tokens == alone(replace(hot)).tokens
    assert alone(hot).tokens != alone(replace(hot, seed=77)).tokens


def test_an_english_only_model_needs_no_language() -> None:
    """It opens without language and task, and refuses others."""
    engine = Engine(tiny_checkpoint(multilingual=False), slots=1)
    for language in (None, ("en", "en")):
        (result,) = transcribe(engine, [Request(noise(1), language=language)])
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
        (Request(noise(0), fallback_temperatures=(0.0,)), "fallback temperatures lie in"),
        (Request(noise(0), language_hint="xx"), "does not know the language xx"),
        (Request(noise(0), max_new_tokens=0), "max_new_tokens is 1 or more"),
        (Request(noise(0), seed=2**63), "seed"),
        (Request(noise(0), draft_tokens=(5, 9_999)), "draft tokens are ids below"),
        (Request(noise(0), draft_tokens=(-1,)), "draft tokens are ids below"),
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
    (result,) = drain(engine)
    assert isinstance(result, RequestOutput)
    assert result.tokens == alone(REQUESTS[0]).tokens


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
    slot = engine.occupied - 1
    cache = engine.runner.state.cache
    for tensor in (cache.cross_values, cache.self_keys, cache.self_values):
        tensor[:, slot] = torch.nan
    for result in [*results, *drain(engine)]:
        if result.request is victim:
            assert isinstance(result, Failure)
            assert "not finite" in result.message
        else:
            assert isinstance(result, RequestOutput)
            assert result.tokens == alone(result.request).tokens
    again = transcribe(engine, [*others, victim])
    assert [one.tokens for one in again] == [alone(one.request).tokens for one in again]


def test_cancelled_work_leaves_no_result() -> None:
    """Before its first step and in mid-flight; the others go on."""
    engine = Engine(CHECKPOINT, slots=3)
    for request in REQUESTS[4:7]:
        engine.admit(request)
    engine.cancel(REQUESTS[5])
    results = engine.step()
    engine.cancel(REQUESTS[4])
    engine.cancel(REQUESTS[4])
    (result,) = [*results, *drain(engine)]
    assert isinstance(result, RequestOutput)
    assert (result.request, result.tokens) == (REQUESTS[6], alone(REQUESTS[6]).tokens)


def test_a_long_prompt_is_cut_from_the_front() -> None:
    """Only the last half context counts, as in Whisper."""
    audio = noise(9)
    long = alone(Request(audio, language="en", prompt="x" * 500 + "the end of the prompt"))
    same = alone(
        Request(audio, language="en", prompt="y" * 500 + "x" * 200 + "the end of the prompt")
    )
    assert long.tokens == same.tokens


@pytest.mark.parametrize("slots", [0, 97])
def test_slots_have_bounds(slots: int) -> None:
    with pytest.raises(ValueError, match=r"slots lie in 1 … 96"):
        Engine(CHECKPOINT, slots=slots)
