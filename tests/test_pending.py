"""Finals that wait for the text of the utterance before, where the two were one but for their length."""

import random

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.protocol import SAMPLE_RATE, Configure, Final
from streaming.session import Output, Session
from streaming.settings import Settings
from streaming.utterance import Decode
from tests.support.streams import (
    GoodHypothesis,
    decodes,
    earlies,
    feed_all,
    finals,
    loud,
    partials,
    quiet,
    session,
)

SHORT_CAP = Settings(cap_ms=10_000)


def cut_once(stream: Session) -> list[Output]:
    """Twelve seconds of talk without a pause, and one behind it."""
    return feed_all(stream, loud(12), quiet(1))


def test_what_was_cut_goes_on_with_the_text_before() -> None:
    stream = session(SHORT_CAP)
    (first,) = finals(cut_once(stream))
    assert first.before == ""
    outputs = stream.accept(first, GoodHypothesis(" We're published"), 1.0)
    (second,) = finals(outputs)
    assert (second.utterance, second.before) == (1, "We're published")
    assert second.start == first.stop
    outputs += stream.accept(second, GoodHypothesis("last week."), 1.0)
    assert [one.text for one in outputs if isinstance(one, Final)] == [
        "We're published",
        "last week.",
    ]
    assert stream.pending_samples == 0


def test_a_pause_too_short_for_an_endpoint_is_a_cut() -> None:
    """The longer the utterance, the shorter the pause that ends it: that one makes half sentences, too."""
    stream = session(SHORT_CAP)
    (first,) = finals(feed_all(stream, loud(9), quiet(0.3), loud(1), quiet(1)))
    (second,) = finals(stream.accept(first, GoodHypothesis("one"), 1.0))
    assert second.before == "one"
    assert second.start >= first.stop


@pytest.mark.parametrize("ended_by", ["pause", "flush"])
def test_what_has_ended_is_no_half(ended_by: str) -> None:
    stream = session(SHORT_CAP)
    outputs = feed_all(stream, loud(9), quiet(2.5 if ended_by == "pause" else 0.1))
    outputs += stream.flush() if ended_by == "flush" else []
    outputs += feed_all(stream, loud(1), quiet(1))
    assert [one.before for one in finals(outputs)] == ["", ""]


@pytest.mark.parametrize(
    "unfit",
    [
        GoodHypothesis("ha", repetitive=True),
        GoodHypothesis("ha", temperature=0.6),
        GoodHypothesis("ha", silent=True, no_speech=0.9, mean_logprob=-1.5),
        None,
    ],
    ids=["repetitive", "guessed", "silent", "failed"],
)
def test_a_doubtful_text_is_no_context(unfit: GoodHypothesis | None) -> None:
    stream = session(SHORT_CAP)
    (first,) = finals(cut_once(stream))
    outputs = stream.fail(first, "no") if unfit is None else stream.accept(first, unfit, 1.0)
    (second,) = finals(outputs)
    assert second.before == ""


@pytest.mark.parametrize(("language", "before"), [("en", "It was said that"), (None, "")])
def test_a_sentence_goes_on_behind_a_pause_in_a_language_that_is_known(
    language: str | None, before: str
) -> None:
    stream = session(language=language)
    (first,) = finals(feed_all(stream, loud(2), quiet(0.8)))
    stream.accept(first, GoodHypothesis("It was said that"), 1.0)
    (second,) = finals(feed_all(stream, loud(2), quiet(1)))
    assert second.before == before


def test_a_text_is_no_context_for_another_language() -> None:
    """The sound behind the change may follow at once."""
    stream = session(SHORT_CAP)
    outputs = feed_all(stream, loud(9), quiet(0.3))
    stream.configure(Configure(language="de"))
    outputs += feed_all(stream, loud(1), quiet(1))
    assert [(one.language, one.before) for one in finals(outputs)] == [("en", ""), ("de", "")]


def test_an_early_final_waits_for_the_text_before_and_partials_do_not() -> None:
    stream = session(SHORT_CAP)
    outputs = feed_all(stream, loud(12), quiet(0.3))
    (first,) = finals(outputs)
    assert not [one for one in earlies(outputs) if one.utterance]
    assert [one.before for one in partials(outputs) if one.utterance]
    stream.accept(first, GoodHypothesis("one"), 1.0)
    (early,) = earlies(feed_all(stream, quiet(0.1)))
    assert (early.utterance, early.before) == (1, "one")
    stream.accept(early, GoodHypothesis("two"), 1.0)
    last = feed_all(stream, quiet(1))
    assert not finals(last)
    assert [one.text for one in last if isinstance(one, Final)] == ["two"]


def test_an_utterance_counts_as_a_second_at_least() -> None:
    stream = session()
    outputs = feed_all(stream, loud(0.1), quiet(1))
    (work,) = finals(outputs)
    assert work.stop - work.start < SAMPLE_RATE == stream.pending_samples


@given(
    script=st.lists(st.tuples(st.booleans(), st.integers(1, 1_200)), max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
@hypothesis.settings(deadline=None, max_examples=40)
def test_the_text_before_does_not_depend_on_when_it_came(
    script: list[tuple[bool, int]], seed: int
) -> None:
    """Decodes may come back at once, or in any order."""

    def run(choose: random.Random | None) -> list[str]:
        stream = session(SHORT_CAP, partials=False)
        waiting: list[Decode] = []
        said: list[str] = []

        def take(outputs: list[Output]) -> None:
            said.extend(one.text for one in outputs if isinstance(one, Final))
            waiting.extend(decodes(outputs))
            while waiting and (choose is None or choose.random() < 0.5):
                settle()

        def settle() -> None:
            work = waiting.pop(choose.randrange(len(waiting)) if choose is not None else 0)
            text = f"{work.start} {work.stop} {work.before}"[:60]
            take(stream.accept(work, GoodHypothesis(text), 1.0))

        for speech, hundredths in script:
            for part in range(0, hundredths, 100):
                length = min(hundredths - part, 100) / 100
                take(feed_all(stream, (loud if speech else quiet)(length)))
        take(stream.stop())
        while waiting:
            settle()
        assert stream.pending_samples == 0
        return said

    assert run(None) == run(random.Random(seed))
