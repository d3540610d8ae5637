import pytest

from streaming.dialects.figures import bare, confidence, milliseconds
from streaming.protocol import DecodeFigures, Final, Word

FIGURES = DecodeFigures(rounds=1, proposed=0, accepted=0, reused=0, ms=1.0)


def final(text: str, *chances: float, logprob: float = -0.1) -> Final:
    words = [Word(text="w", start=0.0, end=1.0, probability=chance) for chance in chances] or None
    about = {"language": "en", "no_speech": 0.0, "mean_logprob": logprob, "decode": FIGURES}
    return Final(utterance=0, start=0.0, end=1.0, text=text, words=words, **about)  # type: ignore[arg-type]


def test_confidence_is_of_the_words_or_of_the_tokens() -> None:
    assert confidence(final("a b", 0.5, 1.0)) == 0.75
    assert confidence(final("a b")) == pytest.approx(0.9048)
    assert confidence(final("")) == 0.0
    assert confidence(final("a", logprob=0.5)) == 1.0


@pytest.mark.parametrize(
    ("text", "word"), [(" Hello,", "hello"), ("»Ja!«", "ja"), ("don't", "don't"), ("—", "—")]
)
def test_a_bare_word_has_no_marks_around_it(text: str, word: str) -> None:
    assert bare(Word(text=text, start=0, end=1, probability=1)) == word


def test_milliseconds_are_rounded() -> None:
    assert milliseconds(0.4806) == 481
