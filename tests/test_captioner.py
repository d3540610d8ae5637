from streaming.captioner import Captioner
from streaming.configuration import Configuration
from streaming.languages import Languages
from streaming.protocol import Start
from streaming.text_rules import TextRules
from streaming.utterance import Decode, Utterance
from tests.support.streams import RATE, GoodHypothesis, quiet


def captioner(**start: object) -> Captioner:
    return Captioner(Start(**start))  # type: ignore[arg-type]  # any fields


def decode(one: Captioner, utterance: Utterance, *, final: bool = False) -> Decode:
    return one.decode(utterance, (0, RATE), RATE, quiet(1), final=final)


def configuration(language: str | None = "en") -> Configuration:
    return Configuration(Start(language=language), Languages(language))


def utterance(language: str | None = "en") -> Utterance:
    return Utterance(0, start=0, onset=0, due=0, given=0, configuration=configuration(language))


def test_a_partial_is_wanted_where_it_was_asked_for_and_its_language_can_be_told() -> None:
    assert captioner().wants_partial(utterance(), 1)
    assert not captioner(partials=False).wants_partial(utterance(), RATE)
    assert not captioner().wants_partial(utterance(None), RATE - 1)
    assert captioner().wants_partial(utterance(None), RATE)


def test_a_language_that_was_detected_is_expected_of_the_next() -> None:
    one, asked = captioner(), configuration(None)
    spoken, after = (
        Utterance(n, start=0, onset=0, due=0, given=0, configuration=asked) for n in (0, 1)
    )
    first = decode(one, spoken, final=True)
    assert (first.language, first.language_hint) == (None, None)
    one.final(spoken, first, GoodHypothesis("ja", language="de", language_probability=0.9), 1.0)
    assert decode(one, after).language_hint == "de"


def test_words_that_were_promised_begin_every_later_decode() -> None:
    one, spoken = captioner(stability="commit"), utterance()
    for stop in (RATE, 2 * RATE):
        work = one.decode(spoken, (0, stop), stop, quiet(1))
        one.partial(spoken, work, GoodHypothesis("it is not so"))
    work = one.decode(spoken, (0, 3 * RATE), RATE, quiet(1), final=True)
    assert work.prefix
    assert "it is not so".startswith(work.prefix)
    assert captioner().decode(spoken, (0, RATE), RATE, quiet(1)).prefix == ""


def test_an_older_hypothesis_shows_nothing() -> None:
    one, spoken = captioner(), utterance()
    assert one.partial(spoken, decode(one, spoken), GoodHypothesis("yes, but")) is not None
    assert one.partial(spoken, decode(one, spoken), GoodHypothesis("yes, and")) is None


def test_texts_follow_the_rules_and_keep_the_raw_one() -> None:
    one = Captioner(Start(language="en"), TextRules({"yes": "yep"}, [], numbers="digits"))
    spoken = utterance()
    shown = one.partial(spoken, decode(one, spoken), GoodHypothesis("yes twenty people came"))
    assert shown is not None
    assert shown.text == "yep 20 people"
    final = one.final(
        spoken, decode(one, spoken, final=True), GoodHypothesis("Yes, twenty people."), 1.0
    )
    assert (final.text, final.raw) == ("Yep, 20 people.", "Yes, twenty people.")
    plain = captioner()
    assert (
        plain.final(spoken, decode(plain, spoken, final=True), GoodHypothesis("yes"), 1.0).raw
        is None
    )


def test_a_failure_is_an_error_and_an_empty_final() -> None:
    one, spoken = captioner(), utterance()
    error, final = one.failed(spoken, decode(one, spoken, final=True), "no memory")
    assert (error.code, error.fatal) == ("decode_failed", False)
    assert "no memory" in error.message
    assert (final.text, final.language) == ("", "en")
