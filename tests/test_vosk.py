import json
from typing import Any

import pytest
from hypothesis import given, settings

from streaming.dialects.vosk import Vosk
from streaming.protocol import Start
from tests.support.dialects import STEPS, Conversation, Frame, Step, Words, garbage, opening, sound
from tests.support.streams import cut, s16

WORDS: Words = {
    "speech": lambda step: cut(s16(sound(step)), [8000]),
    "silence": lambda step: cut(s16(sound(step)), [8000]),
    "flush": lambda _: ['{"reset" : 1}'],
    "keep": lambda _: ['{"config" : {"sample_rate" : 8000}}'],
}
VOCABULARY = ("config", "eof", "reset", "sample_rate", "phrase_list", "words", "max_alternatives")


def talk(steps: list[Step], **config: Any) -> Conversation:
    client = Conversation(Vosk(opening()))
    client.say(json.dumps({"config": {"sample_rate": 16_000} | config}))
    client.play(steps, WORDS)
    client.say('{"eof" : 1}')
    return client


@settings(max_examples=40)
@given(STEPS)
def test_every_frame_is_answered_once(steps: list[Step]) -> None:
    """In lock-step: a `reset` while the recogniser is held is answered when it goes on."""
    client = Conversation(Vosk(opening()))
    client.say('{"config" : {"sample_rate" : 16000}}')
    assert not client.sent
    held = resets = 0
    for kind, seconds in steps:
        if kind in ("hold", "release"):
            getattr(client, kind)()
            held = kind == "hold"
            continue
        if kind == "flush" and held:
            client.release()
            held = False
        before = len(client.sent)
        frames = WORDS[kind]((kind, seconds))
        client.say(*frames)
        resets += kind == "flush"
        assert len(client.sent) - before == (0 if kind == "keep" else len(frames))
    client.release()
    before = len(client.sent)
    client.say('{"eof" : 1}')
    assert len(client.sent) == before + 1
    assert "text" in client.sent[-1]
    assert client.over
    said = " ".join(one["text"] for one in client.sent if one.get("text"))
    assert said == " ".join(final.text for final in client.finals if final.text)


@settings(max_examples=300)
@given(garbage(VOCABULARY))
def test_whatever_comes_is_answered(frame: Frame) -> None:
    client = Conversation(Vosk(opening()))
    client.say(frame, bytes(800))
    assert client.over or client.sent


def test_words_have_times_from_the_beginning() -> None:
    client = talk([("speech", 1.0), ("silence", 2.0), ("speech", 1.0)])
    words = [word for one in client.sent for word in one.get("result", [])]
    assert len(words) == 4
    assert [word["start"] for word in words] == sorted(word["start"] for word in words)
    assert words[2]["start"] > 2.5


def test_finals_without_words_and_with_alternatives() -> None:
    plain = talk([("speech", 1.0)], words=0).sent[-1]
    assert set(plain) == {"text"}
    (best,) = talk([("speech", 1.0)], max_alternatives=3).sent[-1]["alternatives"]
    assert set(best) == {"confidence", "text", "result"}
    assert talk([]).sent == [{"text": ""}]


def test_the_config_says_what_is_asked() -> None:
    dialect = Vosk(opening())
    config = {
        "sample_rate": "16000.000000",
        "phrase_list": ["yes", "[unk]"],
        "model": "x",
        "new": 1,
    }
    assert list(dialect.receive(json.dumps({"config": config}))) == []
    start = next(iter(dialect.receive(bytes(2))))
    assert start == Start(rate=16_000, words=True, hot_words=["yes"])
    assert next(iter(Vosk(opening()).receive(bytes(2)))) == Start(rate=8_000, words=True)


def test_commands_may_come_in_binary_frames() -> None:
    client = Conversation(Vosk(opening()))
    client.say(b'{"config" : {"sample_rate" : 16000}}', b'{"eof" : 1}')
    assert client.sent == [{"text": ""}]
    assert client.over


@pytest.mark.parametrize(
    "frame", ["nonsense", '{"dance": 1}', '{"config": 1}', '{"config": {"sample_rate": 1}}']
)
def test_what_is_wrong_is_told_by_the_close_reason(frame: str) -> None:
    dialect = Vosk(opening())
    client = Conversation(dialect)
    client.say(frame)
    assert client.over
    code, reason = dialect.close(1008, "see the error before")
    assert code == 1008
    assert reason != "see the error before"
    assert len(reason.encode()) <= 123
