import pytest

from model.engine.fallback import is_silence
from streaming.hallucination import is_plausible, worth_showing
from streaming.protocol import Final, Partial
from tests.support.streams import GoodHypothesis, feed_all, finals, loud, partials, quiet, session


def thanks(no_speech: float, logprob: float) -> GoodHypothesis:
    silent = is_silence(no_speech, logprob)
    return GoodHypothesis("Thank you.", no_speech=no_speech, mean_logprob=logprob, silent=silent)


@pytest.mark.parametrize(
    ("no_speech", "logprob"),
    [
        (0.94, -0.50),  # digital silence: "you"
        (0.95, -0.65),  # mains hum: "you"
        (0.90, -0.81),  # a tap: "Thank you."
        (0.92, -0.80),  # vibraphone: "you"
        (0.79, -1.05),  # celesta: "you"
        (0.66, -2.10),  # dishes: "I'm gonna go get some water."
    ],
)
def test_words_made_of_no_speech_are_not_believed(no_speech: float, logprob: float) -> None:
    """As measured with base."""
    assert not is_plausible(thanks(no_speech, logprob))


@pytest.mark.parametrize(
    ("no_speech", "logprob"),
    [
        (0.01, -0.18),  # a sentence
        (0.63, -0.89),  # "six"
        (0.60, -0.80),  # "one"
        (0.15, -1.33),  # "zero"
        (0.33, -1.24),  # "four"
        (0.80, -0.20),  # silence is likely at first, but the words are certain
    ],
)
def test_the_same_words_are_believed_where_they_were_said(no_speech: float, logprob: float) -> None:
    """No word is distrusted for what it is."""
    assert is_plausible(thanks(no_speech, logprob))


NOISE = GoodHypothesis("Thank you.", no_speech=0.9, mean_logprob=-0.8)


def test_a_final_of_noise_is_empty_and_says_why() -> None:
    """The account and the figures stay; the words do not."""
    stream = session()
    (work,) = finals(feed_all(stream, loud(1), quiet(1)))
    (final,) = stream.accept(work, NOISE, 1.0)
    assert isinstance(final, Final)
    assert (final.text, final.no_speech, final.mean_logprob) == ("", 0.9, -0.8)


def test_a_partial_of_noise_is_not_shown() -> None:
    stream = session()
    first, second = partials(feed_all(stream, loud(1.05)))
    assert stream.accept(first, NOISE, 1.0) == []
    assert len(stream.accept(second, GoodHypothesis("Thank you all."), 1.0)) == 1


def test_a_looping_partial_leaves_what_was_shown() -> None:
    """And a loop is never settled, however often it is heard."""
    stream = session()
    works = partials(feed_all(stream, loud(1.6)))
    stream.accept(works[0], GoodHypothesis("it is so"), 1.0)
    for work in works[1:3]:
        assert stream.accept(work, GoodHypothesis("la la", looped=True, repetitive=True), 1.0) == []
    (partial,) = stream.accept(
        partials(feed_all(stream, loud(0.5)))[0], GoodHypothesis("it is so good"), 1.0
    )
    assert isinstance(partial, Partial)
    assert partial.text == "it is so"


@pytest.mark.parametrize(
    ("no_speech", "mean_logprob", "plausible"),
    [(0.55, -1.12, False), (0.57, -0.51, True), (0.46, -0.9, True), (0.35, -1.1, True)],
)
def test_behind_silence_that_was_put_in_front_less_is_plausible(
    no_speech: float, mean_logprob: float, *, plausible: bool
) -> None:
    """Noise at the beginning of a stream, and digits there."""
    said = GoodHypothesis("words", no_speech=no_speech, mean_logprob=mean_logprob)
    assert is_plausible(said, led=True) is plausible
    assert worth_showing(said, led=True) is plausible
    assert is_plausible(said)
