import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings

from streaming.dialects.deepgram import Deepgram
from streaming.protocol import ProtocolError, Start
from tests.support.dialects import STEPS, Conversation, Frame, Step, Words, garbage, opening, sound
from tests.support.streams import s16

WORDS: Words = {
    "speech": lambda step: [s16(sound(step))],
    "silence": lambda step: [s16(sound(step))],
    "flush": lambda _: ['{"type":"Finalize"}'],
    "keep": lambda _: ['{"type":"KeepAlive"}', b""],
}
CLOSE = '{"type":"CloseStream"}'
VOCABULARY = ("type", "KeepAlive", "Finalize", "CloseStream", "Configure", "keyterms", "channel")


def talk(steps: list[Step], **query: str) -> Conversation:
    client = Conversation(Deepgram(opening(**{"interim_results": "true"} | query)))
    client.play([*steps, ("speech", 0.5)], WORDS)
    client.say(CLOSE)
    client.release()
    return client


def results(client: Conversation) -> list[dict[str, Any]]:
    return [one for one in client.sent if one["type"] == "Results"]


@settings(max_examples=40)
@given(STEPS)
def test_finals_tile_the_audio(steps: list[Step]) -> None:
    """Without gap and overlap, with every word inside; interims begin where the last final ended."""
    client = talk(steps, vad_events="true", utterance_end_ms="1000")
    told = 0.0
    for one in results(client):
        assert one["start"] == pytest.approx(told, abs=1e-5)
        assert one["duration"] >= 0
        end = one["start"] + one["duration"]
        if one["is_final"]:
            told = end
        for word in one["channel"]["alternatives"][0]["words"]:
            assert one["start"] - 1e-5 <= word["start"] <= word["end"] <= end + 1e-5
    assert client.over
    metadata = client.sent[-1]
    audio = b"".join(s16(sound(step)) for step in [*steps, ("speech", 0.5)] if step[1])
    assert metadata["type"] == "Metadata"
    assert metadata["duration"] == pytest.approx(len(audio) / 32_000)
    assert metadata["sha256"] == hashlib.sha256(audio).hexdigest()


@settings(max_examples=40)
@given(STEPS)
def test_every_finalize_is_answered_once(steps: list[Step]) -> None:
    answers = [one for one in results(talk(steps)) if one["from_finalize"]]
    assert len(answers) == sum(kind == "flush" for kind, _ in steps)


@settings(max_examples=40)
@given(STEPS)
def test_the_finals_are_those_of_the_session(steps: list[Step]) -> None:
    client = talk(steps)
    said = [
        one["channel"]["alternatives"][0]["transcript"]
        for one in results(client)
        if one["is_final"]
    ]
    assert [text for text in said if text] == [final.text for final in client.finals if final.text]


@settings(max_examples=300)
@given(garbage(VOCABULARY))
def test_whatever_comes_is_answered(frame: Frame) -> None:
    client = Conversation(Deepgram(opening()))
    client.say(frame)
    assert client.session is not None


def test_an_utterance_end_comes_after_so_much_without_a_word() -> None:
    steps = [("speech", 1.0), ("silence", 3.0)]
    client = talk(steps, utterance_end_ms="1000")
    (end,) = [one for one in client.sent if one["type"] == "UtteranceEnd"]
    first = results(client)[0]["channel"]["alternatives"][0]["words"]
    finals = [one for one in results(client) if one["is_final"]]
    assert end["last_word_end"] == finals[0]["channel"]["alternatives"][0]["words"][-1]["end"]
    assert not first


def test_a_cut_in_speech_is_no_end_of_speech() -> None:
    """Thirty seconds are the most that is heard at once."""
    client = talk([("speech", 35.0), ("silence", 1.0)])
    finals = [one for one in results(client) if one["is_final"]]
    assert [one["speech_final"] for one in finals] == [False, True, True]


def test_the_url_says_what_is_asked() -> None:
    query = (("language", "de-CH"), ("keyterm", "a"), ("keyterm", "b c"), ("endpointing", "300"))
    about = opening(encoding="mulaw", sample_rate="8000", channels="2")
    dialect = Deepgram(type(about)(about.name, (*about.query, *query)))
    assert list(dialect.open()) == [
        Start(
            encoding="mulaw",
            rate=8_000,
            channels=2,
            language="de",
            partials=False,
            words=True,
            hot_words=["a", "b c"],
            endpoint_silence_ms=300,
        )
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoding", "speex"),
        ("callback", "http://x"),
        ("redact", "pci"),
        ("utterance_end_ms", "10"),
    ],
)
def test_what_captiond_has_not_is_refused(name: str, value: str) -> None:
    with pytest.raises(ProtocolError, match=name):
        Deepgram(opening(**{name: value}))


def test_a_wrong_message_is_told_as_such() -> None:
    client = Conversation(Deepgram(opening()))
    client.say('{"type":"Dance"}', '{"type":"Configure","keyterms":["x"]}')
    error, failure = client.sent
    assert (error["type"], error["variant"], json.loads(error["message"])) == (
        "Error",
        "SchemaError",
        {"type": "Dance"},
    )
    assert failure["type"] == "ConfigureFailure"
    assert not client.over


def test_close_codes_are_deepgrams() -> None:
    assert Deepgram(opening()).close(4000, "idle") == (1011, "NET-0001")
    assert Deepgram(opening()).close(1000, "") == (1000, "")
