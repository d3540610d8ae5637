import pytest

from streaming.hypothesis import Hypothesis, TimedWord, final_message
from streaming.protocol import Word
from tests.support.streams import GoodHypothesis


def test_words_are_told_in_session_time() -> None:
    """However late in the session: the times of a word do not drift from its audio's."""
    hour = 3600 * 16_000
    heard = GoodHypothesis(
        "so it is", timed=(TimedWord("so", 0.25, 0.5, 0.9), TimedWord("it is", 0.5, 1.0, 0.9))
    )
    final = final_message(7, hour, hour + 16_000, heard, "so it is", 5.0)
    assert (final.start, final.end) == (3600.0, 3601.0)
    assert final.words == [
        Word(text="so", start=3600.25, end=3600.5, probability=0.9),
        Word(text="it is", start=3600.5, end=3601.0, probability=0.9),
    ]


@pytest.mark.parametrize("text", ["", "promised it is"])
def test_another_text_than_the_recognisers_has_no_words(text: str) -> None:
    heard = GoodHypothesis("so it is", timed=(TimedWord("so", 0.25, 0.5, 0.9),))
    assert final_message(0, 0, 16_000, heard, text, 5.0).words == []


def test_words_not_asked_for_are_not_told() -> None:
    assert final_message(0, 0, 16_000, GoodHypothesis("so"), "so", 5.0).words is None
    assert final_message(0, 0, 16_000, Hypothesis("", "en"), "", 5.0).words is None


def test_figures_are_the_hypothesis_own() -> None:
    heard = GoodHypothesis("so", temperature=0.4, compression_ratio=1.5)
    final = final_message(0, 0, 16_000, heard, "so", 5.0)
    assert (final.temperature, final.compression_ratio, final.decode.ms) == (0.4, 1.5, 5.0)
    assert (final.no_speech, final.mean_logprob, final.decode.rounds) == (0.25, -0.5, 4)


def test_no_text_covers_nothing() -> None:
    """Words that nobody is believed to have said account for no speech."""
    heard = GoodHypothesis("so", voiced=2.5, covered=2.25)
    told = [final_message(0, 0, 16_000, heard, text, 5.0) for text in ("so", "")]
    assert [(final.voiced, final.covered) for final in told] == [(2.5, 2.25), (2.5, 0.0)]
