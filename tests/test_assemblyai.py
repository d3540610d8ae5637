import pytest
from hypothesis import given, settings

from streaming.dialects.assemblyai import AssemblyAi
from streaming.protocol import Error, ProtocolError, Start
from tests.support.dialects import STEPS, Conversation, Frame, Step, Words, garbage, opening, sound
from tests.support.streams import s16

WORDS: Words = {
    "speech": lambda step: [s16(sound(step))],
    "silence": lambda step: [s16(sound(step))],
    "flush": lambda _: ['{"type":"ForceEndpoint"}'],
    "keep": lambda _: ['{"type":"KeepAlive"}', '{"type":"UpdateConfiguration"}'],
}
VOCABULARY = ("type", "Terminate", "ForceEndpoint", "KeepAlive", "UpdateConfiguration", "prompt")


@settings(max_examples=40)
@given(STEPS)
def test_turns_are_in_order_and_end_once(steps: list[Step]) -> None:
    client = Conversation(AssemblyAi(opening()))
    client.play([*steps, ("speech", 0.5)], WORDS)
    client.say('{"type":"Terminate"}')
    client.release()
    assert client.sent[0]["type"] == "Begin"
    assert client.sent[-1]["type"] == "Termination"
    seconds = 0.5 + sum(step[1] for step in steps)
    assert client.sent[-1]["audio_duration_seconds"] == pytest.approx(seconds, abs=0.51)
    turns = [one for one in client.sent if one["type"] == "Turn"]
    ended = [one for one in turns if one["end_of_turn"]]
    assert [one["turn_order"] for one in ended] == list(range(len(ended)))
    assert [one["transcript"] for one in ended] == [final.text for final in client.finals]
    for final, turn in zip(client.finals, ended, strict=True):
        assert final.words is not None
        starts = [word["start"] for word in turn["words"]]
        assert starts == [round(word.start * 1000) for word in final.words]
    for one in turns:
        later = turns[turns.index(one) :]
        assert one["end_of_turn"] or any(
            two["end_of_turn"] and two["turn_order"] == one["turn_order"] for two in later
        )


@settings(max_examples=300)
@given(garbage(VOCABULARY))
def test_whatever_comes_is_answered(frame: Frame) -> None:
    client = Conversation(AssemblyAi(opening()))
    client.say(frame)
    assert not client.errors or client.sent[-1]["type"] == "Error"


def test_the_url_says_what_is_asked() -> None:
    dialect = AssemblyAi(
        opening(
            sample_rate="8000",
            encoding="pcm_mulaw",
            keyterms_prompt='["a", "b"]',
            language_codes='["en", "de"]',
            max_turn_silence="500",
            include_partial_turns="false",
        )
    )
    assert list(dialect.open()) == [
        Start(
            encoding="mulaw",
            rate=8_000,
            language=["en", "de"],
            partials=False,
            words=True,
            hot_words=["a", "b"],
            endpoint_silence_ms=500,
        )
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoding", "opus"),
        ("redact_pii", "true"),
        ("keyterms_prompt", "[1]"),
        ("keyterms_prompt", "[\udc80"),
        ("webhook_url", "http://x"),
    ],
)
def test_what_captiond_has_not_is_refused(name: str, value: str) -> None:
    with pytest.raises(ProtocolError, match=name):
        AssemblyAi(opening(**{name: value}))


def test_an_error_has_a_code() -> None:
    dialect = AssemblyAi(opening())
    client = Conversation(dialect)
    client.tell(Error(code="idle", message="nothing came", fatal=True))
    assert client.sent[-1] == {"type": "Error", "error_code": 3005, "error": "nothing came"}
    client.tell(Error(code="decode_failed", message="hm", fatal=False))
    assert client.sent[-1]["type"] == "Warning"
    assert dialect.close(4001, "time limit")[0] == 3005


def test_languages_are_told_where_they_were_asked_for() -> None:
    client = Conversation(AssemblyAi(opening(language_detection="true")))
    client.play([("speech", 2.0)], WORDS)
    client.say('{"type":"Terminate"}')
    assert [one["language_code"] for one in client.sent if one.get("end_of_turn")] == ["en"]
