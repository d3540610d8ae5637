import json
from base64 import b64encode
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.dialects.dialect import Opening
from streaming.dialects.openai_realtime import OpenAiRealtime
from streaming.protocol import Start
from tests.support.dialects import (
    NAME,
    STEPS,
    Conversation,
    Frame,
    Step,
    Words,
    garbage,
    opening,
    sound,
)
from tests.support.streams import s16

RATE = 24_000
COMMIT = '{"type": "input_audio_buffer.commit"}'
VOCABULARY = (
    "type", "audio", "session", "session.update", "transcription_session.update", "input",
    "input_audio_buffer.append", "input_audio_buffer.commit", "input_audio_buffer.clear", "event_id",
)  # fmt: skip


def append(step: Step) -> list[Frame]:
    audio = b64encode(s16(sound(step, RATE))).decode()
    return [json.dumps({"type": "input_audio_buffer.append", "audio": audio})]


WORDS: Words = {"speech": append, "silence": append, "flush": lambda _: [COMMIT]}


def update(**heard: Any) -> str:
    session = {"type": "transcription", "audio": {"input": heard}}
    return json.dumps({"type": "session.update", "event_id": "mine", "session": session})


def connected(**headers: str) -> Conversation:
    return Conversation(OpenAiRealtime(Opening(NAME, headers=headers)))


def of_type(client: Conversation, end: str) -> list[dict[str, Any]]:
    return [event for event in client.sent if event["type"].endswith(end)]


@settings(max_examples=40)
@given(STEPS, st.booleans(), st.sampled_from(["whisper-1", "gpt-realtime-whisper"]))
def test_items_are_complete_and_deltas_append(steps: list[Step], turns: bool, model: str) -> None:
    """Whatever is committed is transcribed, once; deltas make up the transcript."""
    client = connected()
    detection = {} if turns else {"turn_detection": None}
    client.say(update(transcription={"model": model, "language": "en"}, **detection))
    client.play([*steps, ("speech", 1.0), ("flush", 0.0)], WORDS)
    committed = [event["item_id"] for event in of_type(client, ".committed")]
    completed = {event["item_id"]: event["transcript"] for event in of_type(client, ".completed")}
    assert len(set(committed)) == len(committed)
    assert sorted(completed) == sorted(committed)
    deltas: dict[str, str] = defaultdict(str)
    for event in of_type(client, ".delta"):
        deltas[event["item_id"]] += event["delta"]
    assert {item: text for item, text in completed.items() if text} == deltas
    chain = [event["previous_item_id"] for event in of_type(client, ".committed")]
    assert chain == [None, *committed[:-1]]
    said = " ".join(completed[item] for item in committed if completed[item])
    assert said == " ".join(final.text for final in client.finals if final.text)
    assert len({event["event_id"] for event in client.sent}) == len(client.sent)
    started = {event["item_id"] for event in of_type(client, "speech_started")}
    assert started <= set(committed) if turns else not started


@settings(max_examples=300)
@given(garbage(VOCABULARY))
def test_whatever_comes_is_answered(frame: Frame) -> None:
    client = connected()
    client.say(frame)
    assert client.sent[0]["type"].endswith("session.created")
    if client.errors:
        assert client.sent[-1]["type"] == "error"


def test_the_beta_has_names_of_its_own() -> None:
    client = connected(**{"openai-beta": "realtime=v1"})
    session = {"input_audio_format": "pcm16", "input_audio_transcription": {"language": "en"}}
    client.say(json.dumps({"type": "transcription_session.update", "session": session}))
    client.play([("speech", 1.0), ("flush", 0.0)], WORDS)
    kinds = [event["type"] for event in client.sent]
    assert kinds[:2] == ["transcription_session.created", "transcription_session.updated"]
    assert "conversation.item.created" in kinds
    assert "conversation.item.done" not in kinds


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        ("no", "invalid_json", None),
        ('{"type": "response.create", "event_id": "e"}', "invalid_value", "type"),
        ('{"type": "input_audio_buffer.append"}', "missing_required_parameter", "audio"),
        ('{"type": "input_audio_buffer.append", "audio": "?"}', "invalid_value", "audio"),
        ('{"type": "input_audio_buffer.append", "audio": 1}', "invalid_value", "audio"),
        (COMMIT, "input_audio_buffer_commit_empty", None),
        ('{"type": "session.update"}', "missing_required_parameter", "session"),
        (update(format={"type": "audio/pcm", "rate": 8000}), "invalid_value", "session"),
        (update(tempo=1), "invalid_value", "session"),
    ],
)
def test_an_error_is_told_and_the_session_goes_on(frame: str, code: str, param: str | None) -> None:
    client = connected()
    client.say(frame)
    event = client.sent[-1]
    assert event["type"] == "error"
    assert (event["error"]["code"], event["error"]["param"]) == (code, param)
    if "event_id" in frame:
        assert event["error"]["event_id"] in ("e", "mine")
    client.play([("speech", 1.0), ("flush", 0.0)], WORDS)
    assert of_type(client, ".completed")


def test_what_is_asked_reaches_the_session() -> None:
    dialect = OpenAiRealtime(opening(intent="transcription"))
    words = {"language": "de", "prompt": "p", "keywords": ["k"], "model": "gpt-live-transcribe"}
    form, turns = {"type": "audio/pcma"}, {"type": "server_vad", "silence_duration_ms": 50}
    list(dialect.receive(update(format=form, transcription=words, turn_detection=turns)))
    start, audio = dialect.receive('{"type": "input_audio_buffer.append", "audio": "AAAA"}')
    assert audio == bytes(3)
    assert start == Start(
        encoding="alaw",
        rate=8_000,
        language="de",
        prompt="p",
        hot_words=["k"],
        endpoint_silence_ms=200,
        stability="commit",
    )


def test_nothing_is_changed_once_audio_has_come() -> None:
    client = connected()
    client.play([("speech", 0.5)], WORDS)
    client.say(update(transcription={"language": "de"}))
    assert client.sent[-1]["error"]["code"] == "session_update_not_allowed"
    client.say(update(noise_reduction={"type": "near_field"}))
    assert client.sent[-1]["type"] == "session.updated"


def test_log_probabilities_are_told_where_they_were_asked_for() -> None:
    client = connected()
    asked = {"type": "transcription", "include": ["item.input_audio_transcription.logprobs"]}
    client.say(json.dumps({"type": "session.update", "session": asked}))
    client.play([("speech", 1.0), ("flush", 0.0)], WORDS)
    (done,) = of_type(client, ".completed")
    assert [one["token"] for one in done["logprobs"]] == done["transcript"].split()
    assert {one["logprob"] for one in done["logprobs"]} == {-0.1054}


def test_clearing_takes_away_what_is_not_committed() -> None:
    client = connected()
    client.play([("speech", 1.0)], WORDS)
    client.say('{"type": "input_audio_buffer.clear"}')
    assert of_type(client, ".cleared")
    assert not of_type(client, ".completed")
    client.play([("speech", 1.0), ("flush", 0.0)], WORDS)
    assert len(of_type(client, ".completed")) == 1
