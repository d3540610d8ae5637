import json
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.dialects import openai_rest
from streaming.dialects.rest import RestError
from streaming.protocol import DecodeFigures, Final, Start, Word

MODELS = ("base", "whisper-1")


def final(text: str, start: float = 0.0, words: list[Word] | None = None) -> Final:
    figures = DecodeFigures(rounds=1, proposed=0, accepted=0, reused=0, ms=1.0)
    return Final(
        utterance=0,
        start=start,
        end=start + 1.5,
        text=text,
        language="de",
        no_speech=0.1,
        mean_logprob=-0.2,
        words=words,
        decode=figures,
    )


def wish(*fields: tuple[str, str]) -> openai_rest.Wish:
    return openai_rest.wish([("model", "base"), *fields], "transcribe", MODELS)


def answer(made: openai_rest.Wish, *finals: Final) -> Any:
    kind, body = openai_rest.transcript(made, finals, 3.2)
    assert kind == "application/json"
    return json.loads(body)


def test_the_fields_become_a_start() -> None:
    made = wish(("language", "de"), ("prompt", "x" * 1_200), ("temperature", "0.4"))
    assert made.start == Start(language="de", prompt="x" * 1_000, temperature=0.4, partials=False)
    assert (made.form, made.stream, made.words) == ("json", False, False)


@pytest.mark.parametrize(
    ("granularities", "words", "segments"),
    [((), False, True), (("word",), True, False), (("word", "segment"), True, True)],
)
def test_granularities(granularities: tuple[str, ...], words: bool, segments: bool) -> None:
    fields = [("timestamp_granularities[]", one) for one in granularities]
    made = wish(("response_format", "verbose_json"), *fields)
    assert (made.words, made.segments, made.start.words) == (words, segments, words)
    found = answer(
        made, final("Ja.", words=[Word(text="Ja.", start=0.1, end=0.4, probability=0.9)])
    )
    assert ("words" in found, "segments" in found) == (words, segments)


def test_verbose_json_is_complete() -> None:
    found = answer(
        wish(("response_format", "verbose_json")), final("Ja."), final(""), final("Nein.", 2.0)
    )
    assert (found["text"], found["language"], found["duration"]) == ("Ja. Nein.", "german", 3.2)
    assert found["usage"] == {"type": "duration", "seconds": 4}
    assert [(one["id"], one["start"], one["end"]) for one in found["segments"]] == [
        (0, 0.0, 1.5),
        (1, 2.0, 3.5),
    ]
    assert set(found["segments"][0]) == {
        "id", "seek", "start", "end", "text", "tokens", "temperature", "avg_logprob",
        "compression_ratio", "no_speech_prob",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ([("language", "de")], 400, "model"),
        ([("model", "other")], 404, "other"),
        ([("model", "base"), ("temperature", "1.5")], 400, "temperature"),
        ([("model", "base"), ("response_format", "diarized_json")], 400, "response_format"),
        ([("model", "base"), ("known_speaker_names[]", "Anna")], 400, "known_speaker_names"),
        ([("model", "base"), ("timestamp_granularities[]", "word")], 400, "verbose_json"),
    ],
)
def test_what_is_wrong_is_named(fields: list[tuple[str, str]], status: int, says: str) -> None:
    with pytest.raises(RestError, match=says) as raised:
        openai_rest.wish(fields, "transcribe", MODELS)
    assert raised.value.status == HTTPStatus(status)
    about = json.loads(openai_rest.error_body(raised.value))["error"]
    assert set(about) == {"message", "type", "param", "code"}


@given(st.lists(st.sampled_from(["", "Ja.", "Nein, gewiss.", "日本"]), max_size=6))
def test_deltas_are_the_text(texts: list[str]) -> None:
    events = openai_rest.Events()
    sent = b"".join(events.delta(final(text)) for text in texts) + events.done(1.0)
    read = [json.loads(one.removeprefix(b"data: ")) for one in sent.split(b"\n\n") if one]
    assert "".join(one["delta"] for one in read[:-1]) == read[-1]["text"]
    assert read[-1]["text"] == openai_rest.joined(map(final, texts))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*openai_rest.Options.__struct_fields__, "x[]"]), st.text(max_size=9)
        )
    )
)
def test_no_form_does_harm(fields: list[tuple[str, str]]) -> None:
    """A wish comes of it, or a RestError."""
    try:
        openai_rest.wish(fields, "transcribe", MODELS)
    except RestError as error:
        assert error.status in (400, 404)  # noqa: PT017 - either way is right
