import json
from typing import Any

import pytest
from hypothesis import given, settings

from streaming.dialects.whisperlive import END_OF_AUDIO, WhisperLive
from streaming.protocol import Error
from tests.support.dialects import STEPS, Conversation, Frame, Step, Words, garbage, opening, sound

WORDS: Words = {
    "speech": lambda step: [sound(step).tobytes()],
    "silence": lambda step: [sound(step).tobytes()],
}
VOCABULARY = ("uid", "language", "task", "model", "use_vad", "audio_format", "word_timestamps")


def hello(**options: Any) -> str:
    return json.dumps(
        {"uid": "u", "language": "en", "task": "transcribe", "use_vad": True} | options
    )


def talk(steps: list[Step], **options: Any) -> Conversation:
    client = Conversation(WhisperLive(opening()))
    client.say(hello(**options))
    client.play(steps, WORDS)
    client.say(END_OF_AUDIO)
    client.release()
    return client


@settings(max_examples=40)
@given(STEPS)
def test_completed_segments_never_change(steps: list[Step]) -> None:
    """The last one alone may be unfinished; each begins where the one before has ended, or later."""
    client = talk([*steps, ("speech", 0.5)])
    assert client.sent[0] == {"uid": "u", "message": "SERVER_READY", "backend": "faster_whisper"}
    kept: list[dict[str, Any]] = []
    for message in client.sent[1:]:
        segments = message["segments"]
        assert segments
        completed = [one for one in segments if one["completed"]]
        assert segments[: len(completed)] == completed
        assert len(segments) - len(completed) <= 1
        new = [one for one in completed if one not in kept]
        assert completed == [*kept, *new][-10:]
        kept += new
    assert [one["text"].strip() for one in kept] == [
        final.text for final in client.finals if final.text
    ]
    starts, ends = [one["start"] for one in kept], [one["end"] for one in kept]
    assert all(float(a) <= float(b) for a, b in zip(ends, starts[1:], strict=False))
    assert client.over


@settings(max_examples=300)
@given(garbage(VOCABULARY))
def test_whatever_comes_first_is_answered(frame: Frame) -> None:
    client = Conversation(WhisperLive(opening()))
    client.say(frame)
    assert client.sent[0].get("status") == "ERROR" or client.sent[0]["message"] == "SERVER_READY"


@settings(max_examples=200)
@given(garbage(VOCABULARY))
def test_whatever_comes_then_is_audio_or_wrong(frame: Frame) -> None:
    client = Conversation(WhisperLive(opening()))
    client.say(hello(), frame)
    assert client.over == isinstance(frame, str)


def test_a_language_that_was_found_is_told_by_itself() -> None:
    client = talk([("speech", 2.0), ("silence", 1.0), ("speech", 2.0)], language=None)
    told = [one for one in client.sent if "language" in one]
    assert told == [{"uid": "u", "language": "en", "language_prob": None}]


def test_words_are_told_where_they_were_asked_for() -> None:
    client = talk([("speech", 2.0)], word_timestamps=True, send_last_n_segments=1, hotwords="a, b")
    (segment,) = client.sent[-1]["segments"]
    assert [word["word"] for word in segment["words"]] == segment["text"].split()
    assert all(len(word["start"].partition(".")[2]) == 3 for word in segment["words"])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Error(code="time_limit", message="m", fatal=True), {"message": "DISCONNECT"}),
        (Error(code="idle", message="m", fatal=True), {"status": "ERROR", "message": "m"}),
        (
            Error(code="decode_failed", message="m", fatal=False),
            {"status": "WARNING", "message": "m"},
        ),
    ],
)
def test_errors_are_statuses(error: Error, message: dict[str, str]) -> None:
    client = Conversation(WhisperLive(opening()))
    client.say(hello())
    client.tell(error)
    assert client.sent[-1] == {"uid": "u"} | message
