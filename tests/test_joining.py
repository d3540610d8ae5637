"""Outputs joined by time. The tiny tokenizer has one token a byte."""

from dataclasses import replace

import numpy as np
import pytest

from model.engine.joining import Insertion, joined
from model.engine.requests import Request, RequestOutput
from model.whisper.alignment import WordTiming
from model.whisper.uncovered import Stretch
from tests.support.tiny import tiny_tokens

TOKENS = tiny_tokens()
AUDIO = np.zeros(8 * 16_000, np.float32)


def output(text: str, *times: tuple[float, float], **figures: object) -> RequestOutput:
    """With a word for each of `times`; 10 tokens a second of figures by default."""
    timed = tuple(
        WordTiming(word, *span, 0.5) for word, span in zip(text.split(), times, strict=False)
    )
    made = RequestOutput(
        request=Request(AUDIO, speech=((0, len(AUDIO)),)),
        text=text,
        tokens=(*TOKENS.encode(" " + text), TOKENS.eot),
        language="en",
        language_probability=None,
        no_speech=0.5,
        mean_logprob=-0.25,
        rounds=5,
        proposed=4,
        accepted=3,
        reused=2,
        certain=len(text),
        timed=timed,
        voiced=6.0,
        covered=4.0,
    )
    return replace(made, **figures)  # type: ignore[arg-type]  # any of its fields


def insertion(
    start: float, stop: float, token: int, text: str, *times: tuple[float, float], **figures: object
) -> Insertion:
    stretch = Stretch(round(start * 16_000), round(stop * 16_000), 1.0, token)
    return Insertion(stretch, output(text, *times, **{"voiced": 1.0, "covered": 1.0} | figures))


PARENT = output("one two three", (0.0, 1.0), (4.0, 5.0), (5.0, 8.0))


def test_nothing_inserted_nothing_changed() -> None:
    assert joined(PARENT, [], TOKENS) is PARENT


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (0, "new words one two three"),
        (4, "one new words two three"),
        (8, "one two new words three"),
        (14, "one two three new words"),
        (6, "one two new words three"),
    ],
    ids=["head", "after one", "after two", "tail", "never within a word"],
)
def test_a_text_stands_behind_the_words_before_it(token: int, text: str) -> None:
    result = joined(PARENT, [insertion(2, 3, token, "new words")], TOKENS)
    assert result.text == text
    assert TOKENS.decode(result.tokens[:-1]) == " " + text
    assert result.tokens[-1] == TOKENS.eot
    assert result.request is PARENT.request


def test_several_texts_keep_their_order() -> None:
    new = [insertion(0, 1, 0, "head"), insertion(2, 3, 4, "a"), insertion(3, 4, 4, "b")]
    assert joined(PARENT, new, TOKENS).text == "head one a b two three"


def test_times_are_moved_and_ascend() -> None:
    """The others' words, which stretch over what they left out, give way."""
    new = insertion(3.0, 4.5, 4, "new words", (0.25, 0.75), (0.75, 1.5))
    wide = output("one two three", (0.0, 3.5), (3.5, 5.0), (5.0, 8.0))
    result = joined(wide, [new], TOKENS)
    assert result.timed is not None
    assert [(word.text, word.start, word.end) for word in result.timed] == [
        ("one", 0.0, 3.0),
        ("new", 3.25, 3.75),
        ("words", 3.75, 4.5),
        ("two", 4.5, 5.0),
        ("three", 5.0, 8.0),
    ]
    assert joined(wide, [insertion(3, 4, 4, "new", timed=None)], TOKENS).timed is None


def test_figures_add_up() -> None:
    new = insertion(3.0, 4.0, 4, "new", mean_logprob=-0.75, no_speech=0.1, covered=0.75)
    result = joined(PARENT, [new], TOKENS)
    assert (result.rounds, result.proposed, result.accepted, result.reused) == (10, 8, 6, 4)
    assert (result.voiced, result.covered) == (6.0, 4.75)
    assert result.no_speech == 0.1
    own, its = len(PARENT.tokens), len(new.output.tokens)
    assert result.mean_logprob == pytest.approx((-0.25 * own - 0.75 * its) / (own + its))


def test_no_more_is_covered_than_was_left_out() -> None:
    """A stretch is cut in pauses, so that it may hold speech that its utterance had covered."""
    new = insertion(3.0, 7.0, 4, "new", voiced=3.5, covered=3.5)
    assert joined(PARENT, [new], TOKENS).covered == 5.0


def test_what_is_certain_ends_with_the_first_seam() -> None:
    assert joined(PARENT, [insertion(2, 3, 4, "new")], TOKENS).certain == len("one")
    doubted = replace(PARENT, certain=2)
    assert joined(doubted, [insertion(2, 3, 4, "new")], TOKENS).certain == 2
    head = insertion(2, 3, 0, "new", certain=1)
    assert joined(PARENT, [head], TOKENS).certain == 1


@pytest.mark.parametrize(
    ("languages", "text"),
    [(("zh", "zh"), "天地"), (("zh", "en"), "天 地"), (("en", "ja"), "天 地")],
)
def test_spaces_stand_where_a_language_writes_them(languages: tuple[str, str], text: str) -> None:
    first, second = languages
    parent = output("天", language=first, tokens=(*TOKENS.encode("天"), TOKENS.eot))
    new = insertion(2, 3, 3, "地", language=second, tokens=(*TOKENS.encode("地"), TOKENS.eot))
    assert joined(parent, [new], TOKENS).text == text


def test_an_unended_text_stays_unended() -> None:
    cut = replace(PARENT, tokens=PARENT.tokens[:-1])
    assert joined(cut, [insertion(2, 3, 14, "new")], TOKENS).tokens[-1] != TOKENS.eot
