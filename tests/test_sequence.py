import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.drafting.previous_text import PreviousText
from model.engine.requests import Failure, Request, RequestOutput
from model.engine.round_output import RoundOutput
from model.engine.sequence import Proposal, Sequence
from tests.support.tiny import tiny_tokens

TOKENS = tiny_tokens()
AUDIO = np.zeros(100, np.float32)


def row(draft: list[int] | None = None, *, context: int = 64, **asked: Any) -> Sequence:
    request = Request(AUDIO, **asked)
    one = Sequence(request, "en")
    one.set_prompt(TOKENS, context)
    one.set_proposer(None if draft is None else PreviousText(draft))
    return one


@pytest.mark.parametrize("words", [0, 5, 500])
@pytest.mark.parametrize("context", [64, 448])
def test_opening_and_budget_fit_the_context(words: int, context: int) -> None:
    """The last token emitted needs no position of its own."""
    one = row(context=context, prompt="x" * words)
    assert len(one.prompt_tokens) + one.max_new_tokens - 1 <= context
    assert one.max_new_tokens == min(context // 2, context - len(one.prompt_tokens) + 1)
    assert one.prompt_tokens[-4] == TOKENS.sot


def test_one_place_is_always_the_targets_own() -> None:
    """With R tokens left at most R - 1 are proposed."""
    one = row([7] * 100, context=64)
    one.max_new_tokens = 5
    assert one.propose(8).count == 4
    one.append_output(Proposal(), RoundOutput([7, 7, 7], [-1.0] * 3, 0))
    assert one.propose(8).count == 1
    one.append_output(Proposal(), RoundOutput([7], [-1.0], 0))
    assert (one.propose(8).count or one.draft(3).count) == 0


def test_the_drafter_follows_where_the_text_has_run_off() -> None:
    one = row([5, 6])
    assert one.propose(8).text == [5, 6]
    one.append_output(Proposal([5, 6]), RoundOutput([5, 6, 9], [-1.0] * 3, 2))
    assert one.propose(8) == Proposal()
    assert one.draft(4) == Proposal(drafted=4)


def test_figures_add_up() -> None:
    """Reused are the accepted tokens of texts, accepted those and the drafter's."""
    one = row([5, 6])
    one.append_output(Proposal([5, 6]), RoundOutput([5, 9], [-0.5, -0.5], 1))
    one.append_output(Proposal(drafted=3), RoundOutput([1, 2, TOKENS.eot], [-0.2, -0.2, -0.1], 2))
    assert one.finished(TOKENS.eot)
    assert not one.fall_back(TOKENS)
    result = one.result()
    assert isinstance(result, RequestOutput)
    assert (result.proposed, result.accepted, result.reused) == (5, 3, 1)
    assert result.mean_logprob == pytest.approx(-0.3)


def test_what_is_not_finite_is_a_failure() -> None:
    one = row()
    one.append_output(Proposal(), RoundOutput([1], [math.nan], 0))
    assert one.finished(TOKENS.eot)
    assert not one.fall_back(TOKENS)
    assert isinstance(one.result(), Failure)


def told(one: Sequence, text: str, logprob: float = -0.1) -> Sequence:
    """The row after the target has said `text`, each token with this log-probability."""
    tokens = [*TOKENS.encode(text), TOKENS.eot]
    one.append_output(Proposal(), RoundOutput(tokens, [logprob] * len(tokens), 0))
    return one


def outcome(one: Sequence) -> RequestOutput:
    result = one.result()
    assert isinstance(result, RequestOutput)
    return result


@pytest.mark.parametrize("length", [3, 100])
def test_a_prefix_stands_in_the_opening_and_in_the_transcript(length: int) -> None:
    """It takes of max_new_tokens, never all, and the transcript goes on behind it."""
    one = row(list(TOKENS.encode(" aaa b")), prefix="a" * length, prompt="p" * 100)
    given = TOKENS.encode(" " + "a" * length)[:31]
    assert one.prompt_tokens[-len(given) :] == given
    assert one.max_new_tokens >= 1
    assert len(one.prompt_tokens) + one.max_new_tokens - 1 <= 64
    if length == 3:
        assert one.propose(8).text == TOKENS.encode(" b"), "the draft goes on behind it, too"
    assert not told(one, " b").fall_back(TOKENS)
    assert outcome(one).text == TOKENS.decode(given).strip() + " b"


def test_a_loop_is_cut_to_one_copy_where_that_is_asked_for() -> None:
    """Without stop_on_repetition it goes on to max_new_tokens."""
    stop_on_repetition, plain = row(stop_on_repetition=True, context=448), row(context=448)
    for one in (stop_on_repetition, plain):
        one.append_output(
            Proposal(), RoundOutput(TOKENS.encode(" so" + " la li" * 7), [-0.1] * 45, 0)
        )
    assert stop_on_repetition.finished(TOKENS.eot)
    assert not plain.finished(TOKENS.eot)
    assert not stop_on_repetition.fall_back(TOKENS)
    result = outcome(stop_on_repetition)
    assert (result.text, result.looped) == ("so la li", True)


@given(st.lists(st.integers(7, 9), min_size=40, max_size=70), st.integers(1, 70))
def test_a_loop_is_cut_alike_whatever_comes_at_once(tokens: list[int], size: int) -> None:
    told = []
    for step in (1, size):
        one = row(stop_on_repetition=True, context=448)
        for at in range(0, len(tokens), step):
            if one.finished(TOKENS.eot):
                break
            part = tokens[at : at + step]
            one.append_output(Proposal(), RoundOutput(part, [-0.1] * len(part), 0))
        told.append((one.tokens, one.logprobs, one.finished(TOKENS.eot)))
    assert told[0] == told[1]


def test_a_failed_transcript_is_tried_again_at_higher_temperatures() -> None:
    """Up to one that passes; rounds and proposals of all attempts count."""
    one = told(row(fallback_temperatures=(0.2, 0.4, 0.6)), " mumble", logprob=-1.5)
    assert one.fall_back(TOKENS)
    assert (one.temperature, one.tokens) == (0.2, [])
    assert not one.finished(TOKENS.eot)
    assert told(one, " mumbling", logprob=-1.2).fall_back(TOKENS)
    assert not told(one, " clear", logprob=-0.9).fall_back(TOKENS)
    result = outcome(one)
    assert (result.text, result.temperature) == ("clear", 0.4)
    assert result.mean_logprob == pytest.approx(-0.9)


def test_each_attempt_draws_its_own_numbers() -> None:
    one = row(fallback_temperatures=(0.2, 0.4), seed=9)
    seeds = {one.seed}
    while told(one, " mumble", logprob=-2.0).fall_back(TOKENS):
        seeds.add(one.seed)
    assert len(seeds) == 3


def test_of_attempts_that_all_failed_the_likeliest_is_kept() -> None:
    """Rather than the last one, drawn at the highest temperature; a loop comes last of all."""
    one = row(fallback_temperatures=(0.2, 0.4), stop_on_repetition=True, context=448)
    one.append_output(Proposal(), RoundOutput(TOKENS.encode(" la" * 12), [-0.1] * 36, 0))
    assert one.fall_back(TOKENS)
    assert told(one, " likely", logprob=-1.1).fall_back(TOKENS)
    assert not told(one, " unlikely", logprob=-3.0).fall_back(TOKENS)
    assert outcome(one).text == "likely"


def test_what_silence_says_is_not_tried_again() -> None:
    one = told(row(fallback_temperatures=(0.2,)), " you", logprob=-1.5)
    one.no_speech = 0.9
    assert not one.fall_back(TOKENS)


def test_what_the_target_doubts_is_told() -> None:
    """Up to there the text is certain; a prefix is certain in any case."""
    one = row(prefix="ab", context=448)
    one.append_output(
        Proposal(), RoundOutput(TOKENS.encode(" cd ef"), [-0.1] * 4 + [-0.9] + [-0.1], 0)
    )
    one.append_output(Proposal(), RoundOutput([TOKENS.eot], [-0.1], 0))
    assert not one.fall_back(TOKENS)
    result = outcome(one)
    assert result.text == "ab cd ef"
    assert result.text[: result.certain] == "ab cd"
