import pytest

from streaming.languages import ENOUGH, Languages
from streaming.protocol import Final, Partial
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


@pytest.mark.parametrize("asked", ["de", ["de"]])
@pytest.mark.parametrize("voiced", [0, 10 * ENOUGH])
def test_a_fixed_language_is_never_detected(asked: str | list[str], voiced: int) -> None:
    assert Languages(asked).fixed == "de"
    assert Languages("de").of(voiced) == ("de", None)
    assert Languages(asked).enough(voiced)


@pytest.mark.parametrize("asked", [None, ["de", "en"]])
def test_a_language_is_detected_from_a_second_on(asked: list[str] | None) -> None:
    languages = Languages(asked)
    among = tuple(asked) if asked else None
    assert languages.of(ENOUGH) == (among, None)
    assert not languages.enough(ENOUGH - 1)


def test_a_short_utterance_is_in_the_language_spoken_before() -> None:
    """Where it may be in any; with nothing to go by it is detected after all."""
    languages = Languages(None)
    assert languages.of(ENOUGH - 1) == (None, None)
    languages.learn("en", 0.9, ENOUGH)
    assert languages.of(ENOUGH - 1) == ("en", None)
    assert languages.of(ENOUGH) == (None, "en")


@pytest.mark.parametrize("voiced", [0, ENOUGH - 1, ENOUGH])
def test_within_a_set_the_language_is_detected_however_short_the_utterance(voiced: int) -> None:
    """None of the set is taken blindly, neither the first nor the one before."""
    languages = Languages(["de", "en"])
    assert languages.of(voiced) == (("de", "en"), None)
    languages.learn("en", 0.9, ENOUGH)
    assert languages.of(voiced) == (("de", "en"), "en")


def test_words_in_a_doubtful_first_language_are_not_shown_but_asked_again() -> None:
    """With more audio. The final has the last word; a later utterance has a language to go by."""
    stream = session(language=["en", "de"])
    (first,) = partials(feed_all(stream, loud(1.3)))
    doubtful = GoodHypothesis("good and morgan", language="en", language_probability=0.6)
    assert stream.accept(first, doubtful, 1.0) == []
    (second,) = partials(feed_all(stream, loud(0.3)))
    assert second.language_hint is None
    sure = GoodHypothesis("guten Morgen", language="de", language_probability=0.8)
    (shown,) = stream.accept(second, sure, 1.0)
    assert isinstance(shown, Partial)
    (work,) = finals(feed_all(stream, quiet(1)))
    (final,) = stream.accept(work, doubtful, 1.0)
    assert isinstance(final, Final)
    assert (final.text, final.language_probability) == ("good and morgan", 0.6)
    (third,) = partials(feed_all(stream, loud(1.3)))
    assert len(stream.accept(third, doubtful, 1.0)) == 1


@pytest.mark.parametrize(
    ("probability", "voiced"), [(0.4, 5 * ENOUGH), (0.9, ENOUGH - 1), (None, 5 * ENOUGH)]
)
def test_a_guess_is_not_remembered(probability: float | None, voiced: int) -> None:
    """Neither what was unsure, nor what was too short, nor what was told."""
    languages = Languages(None)
    languages.learn("cy", probability, voiced)
    assert languages.known is None


def test_first_partials_wait_until_a_language_can_be_told() -> None:
    """Else they flash in one that nobody speaks."""
    stream = session(language=None)
    (first,) = partials(feed_all(stream, loud(1.3)))
    assert first.voiced >= ENOUGH
    assert (first.language, first.language_hint) == (None, None)
    stream.accept(first, GoodHypothesis("ja das ist", language="de", language_probability=0.8), 1.0)
    (second,) = partials(feed_all(stream, loud(0.3)))
    assert (second.language, second.language_hint) == (None, "de")


def test_each_utterance_is_detected_anew_and_noise_teaches_nothing() -> None:
    stream = session(language=["en", "de"])
    (one,) = finals(feed_all(stream, loud(1.5), quiet(0.8)))
    stream.accept(one, GoodHypothesis("guten Tag", language="de", language_probability=0.9), 1.0)
    two, three = finals(feed_all(stream, loud(1.5), quiet(0.8), loud(0.3), quiet(0.8)))
    assert (two.language, two.language_hint) == (("en", "de"), "de")
    assert (three.language, three.language_hint) == (("en", "de"), "de")
    noise = GoodHypothesis(
        "you", language="en", language_probability=0.9, no_speech=0.9, mean_logprob=-1.0
    )
    (final, _) = [*stream.accept(two, noise, 1.0), *stream.accept(three, GoodHypothesis("ja"), 1.0)]
    assert isinstance(final, Final)
    assert final.text == ""
    (four,) = finals(feed_all(stream, loud(0.3), quiet(0.8)))
    assert four.language_hint == "de"


def test_an_early_final_is_in_the_language_that_its_final_would_be_in() -> None:
    stream = session(language=None)
    outputs = feed_all(stream, loud(0.5), quiet(0.8))
    (early,), (final,) = earlies(outputs), finals(outputs)
    assert early.language == final.language
    assert len(decodes(outputs)) == 2
