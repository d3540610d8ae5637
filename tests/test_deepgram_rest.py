import json
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.dialects import deepgram_rest
from streaming.dialects.rest import RestError
from streaming.protocol import DecodeFigures, Final, Word

ACCOUNT = deepgram_rest.Account(
    request="r",
    model="base",
    sha256="00",
    created=datetime(2026, 1, 2, tzinfo=UTC),
    duration=3.2,
    channels=2,
)


def final(text: str, words: list[Word]) -> Final:
    figures = DecodeFigures(rounds=1, proposed=0, accepted=0, reused=0, ms=1.0)
    return Final(
        utterance=0,
        start=0.5,
        end=2.0,
        text=text,
        language="de",
        no_speech=0.1,
        mean_logprob=-0.2,
        words=words,
        decode=figures,
    )


def answer(*query: tuple[str, str]) -> Any:
    words = [
        Word(text="Guten", start=0.5, end=0.9, probability=0.75),
        Word(text="Tag!", start=1.0, end=1.4, probability=0.25),
    ]
    made = deepgram_rest.wish(query)
    return json.loads(deepgram_rest.transcript(made, [final("Guten Tag!", words)], ACCOUNT))


def test_options_become_a_start() -> None:
    made = deepgram_rest.wish(
        [("language", "en-US"), ("keyterm", "Anna"), ("keyterm", "Karl May"), ("model", "nova-3")]
    )
    assert (made.start.language, made.start.hot_words) == ("en", ["Anna", "Karl May"])
    assert (made.raw, made.start.words, made.start.partials) == (False, True, False)
    raw = deepgram_rest.wish([("encoding", "mulaw"), ("sample_rate", "8000"), ("channels", "2")])
    assert raw.raw
    assert (raw.start.encoding, raw.start.rate, raw.start.channels) == ("mulaw", 8_000, 2)


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ([], "en"),
        ([("language", "multi")], None),
        ([("detect_language", "true")], None),
        ([("detect_language", "false")], "en"),
        ([("detect_language", "de"), ("detect_language", "fr")], ["de", "fr"]),
    ],
)
def test_languages(query: list[tuple[str, str]], language: object) -> None:
    assert deepgram_rest.wish(query).start.language == language


def test_the_answer_is_deepgrams() -> None:
    found = answer(("utterances", "true"), ("detect_language", "true"))
    metadata, results = found["metadata"], found["results"]
    assert (metadata["created"], metadata["channels"]) == ("2026-01-02T00:00:00.000Z", 2)
    assert metadata["model_info"][metadata["models"][0]]["arch"] == "whisper"
    (channel,) = results["channels"]
    (alternative,) = channel["alternatives"]
    assert (alternative["transcript"], alternative["confidence"]) == ("Guten Tag!", 0.5)
    assert alternative["words"][1] == {
        "word": "tag",
        "start": 1.0,
        "end": 1.4,
        "confidence": 0.25,
        "punctuated_word": "Tag!",
    }
    assert channel["detected_language"] == "de"
    assert results["utterances"][0]["transcript"] == "Guten Tag!"
    assert "utterances" not in answer()["results"]


@pytest.mark.parametrize(
    "query", [("redact", "pci"), ("callback", "http://x"), ("sample_rate", "1")]
)
def test_what_captiond_lacks_is_refused(query: tuple[str, str]) -> None:
    with pytest.raises(RestError, match=query[0]) as raised:
        deepgram_rest.wish([query])
    about = json.loads(deepgram_rest.error_body(raised.value, "r"))
    assert set(about) == {"err_code", "err_msg", "request_id"}


def test_no_url_is_fetched() -> None:
    deepgram_rest.check_body("audio/wav")
    with pytest.raises(RestError) as raised:
        deepgram_rest.check_body("application/json; charset=utf-8")
    assert raised.value.status == HTTPStatus.BAD_REQUEST


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*deepgram_rest.Options.__struct_fields__, "x"]), st.text(max_size=9)
        )
    )
)
def test_no_query_does_harm(query: list[tuple[str, str]]) -> None:
    """A wish comes of it, or a RestError."""
    try:
        deepgram_rest.wish(query)
    except RestError as error:
        assert error.status == HTTPStatus.BAD_REQUEST  # noqa: PT017 - either way is right
