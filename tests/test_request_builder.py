from dataclasses import fields, replace

import numpy as np
import pytest

from daemon.recognition import request_builder
from model.engine.fallback import FALLBACK_TEMPERATURES
from model.engine.requests import Request, RequestOutput
from model.whisper.alignment import WordTiming
from streaming.hypothesis import Hypothesis, TimedWord
from streaming.protocol import Start
from streaming.utterance import Decode
from tests.support.fakes import ScriptedEngine

AUDIO = np.zeros(16_000, np.float32)


def decode(*, final: bool = False, early: bool = False, prefix: str = "") -> Decode:
    speech = ((0, 8_000),) if final or early else ()
    return Decode(
        0,
        0,
        len(AUDIO),
        AUDIO,
        final=final,
        early=early,
        language="en",
        prefix=prefix,
        speech=speech,
    )


@pytest.mark.parametrize(
    ("final", "early", "whole"), [(False, False, False), (False, True, True), (True, False, True)]
)
def test_what_may_become_final_is_decoded_with_care(final: bool, early: bool, whole: bool) -> None:
    """A partial is quick instead: a fitted window, one attempt, no words."""
    asked = request_builder.request(
        Start(words=True), decode(final=final, early=early), draft_tokens=(1, 2)
    )
    assert asked.fitted_window is not whole
    assert asked.fallback_temperatures == (FALLBACK_TEMPERATURES if whole else ())
    assert asked.words is whole
    assert bool(asked.speech) is whole
    assert asked.stop_on_repetition
    assert asked.draft_tokens == (1, 2)


def test_early_and_true_finals_ask_for_the_same() -> None:
    start = Start(words=True, prompt="names", hot_words=["Ada"])
    early, final = (
        request_builder.request(start, one) for one in (decode(early=True), decode(final=True))
    )
    fields = (
        "language",
        "prompt",
        "prefix",
        "fallback_temperatures",
        "words",
        "fitted_window",
        "temperature",
        "speech",
    )
    assert [getattr(early, name) for name in fields] == [getattr(final, name) for name in fields]


def test_who_asks_for_sampling_gets_one_attempt() -> None:
    asked = request_builder.request(Start(temperature=0.5), decode(final=True))
    assert asked.fallback_temperatures == ()


@pytest.mark.parametrize(
    ("start", "prompt"),
    [
        (Start(), ""),
        (Start(prompt="before"), "before"),
        (Start(hot_words=["Ada", "Byron"]), "Ada, Byron"),
        (Start(hot_words=["Ada"], prompt="before"), "Ada before"),
    ],
)
def test_hot_words_go_before_the_prompt(start: Start, prompt: str) -> None:
    assert request_builder.request(start, decode(final=True)).prompt == prompt


def test_what_was_cut_off_before_goes_right_in_front_of_the_text() -> None:
    """Hot words and the prompt lose their beginning first where there is no room for all."""
    one = replace(decode(final=True), before="We're published")
    start = Start(hot_words=["Ada"], prompt="names")
    assert request_builder.request(start, one).prompt == "Ada names We're published"


def test_words_that_were_promised_open_the_text() -> None:
    assert request_builder.request(Start(), decode(final=True, prefix="Once")).prefix == "Once"


def test_a_lead_is_decoded_and_in_no_time_of_a_word() -> None:
    """A word that would begin in it begins with the span."""
    loud = replace(decode(final=True), audio=AUDIO + 0.5, lead=4_800)
    asked = request_builder.request(Start(words=True), loud)
    np.testing.assert_array_equal(asked.audio, np.pad(loud.audio, (4_800, 0)))
    output = RequestOutput(
        request=asked,
        text="so it",
        tokens=(1, 2),
        language="en",
        language_probability=None,
        no_speech=0.1,
        mean_logprob=-0.1,
        rounds=1,
        timed=(WordTiming("so", 0.25, 0.5, 0.9), WordTiming("it", 0.5, 0.75, 0.9)),
    )
    so, it = request_builder.hypothesis(output, lead=loud.lead).timed or ()
    assert [so.start, so.end, it.start, it.end] == pytest.approx([0.0, 0.2, 0.2, 0.45])


def test_each_language_of_a_set_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the model lacks is refused before the first word, not in its utterance."""
    engine = ScriptedEngine()
    asked = []
    monkeypatch.setattr(engine, "check", lambda request: asked.append(request.language))
    request_builder.check(Start(language=["de", "en"]), engine)
    request_builder.check(Start(language="fr"), engine)
    request_builder.check(Start(), engine)
    assert asked == ["de", "en", "fr", None]


@pytest.mark.parametrize(
    ("text", "no_speech", "silent", "repetitive"),
    [("so", 0.5, False, False), ("so", 0.7, True, False), ("ha " * 60, 0.5, False, True)],
)
def test_what_the_model_says_is_told_with_its_verdicts(
    text: str, no_speech: float, silent: bool, repetitive: bool
) -> None:
    output = RequestOutput(
        request=Request(AUDIO),
        text=text,
        tokens=(1, 2),
        language="de",
        language_probability=0.8,
        no_speech=no_speech,
        mean_logprob=-1.1,
        rounds=5,
        proposed=4,
        accepted=3,
        reused=2,
        certain=1,
        temperature=0.2,
        timed=(WordTiming("so", 0.25, 0.5, 0.9),),
    )
    said = request_builder.hypothesis(output)
    assert (said.silent, said.repetitive) == (silent, repetitive)
    assert said.timed == (TimedWord("so", 0.25, 0.5, 0.9),)
    same = {field.name for field in fields(Hypothesis)} - {"timed"}
    assert {name: getattr(said, name) for name in same} == {
        name: getattr(output, name) for name in same
    }
