import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.dialects.dialect import Action, Opening, Reply
from streaming.dialects.wyoming import EventReader, Wyoming, WyomingEvent, written
from streaming.protocol import (
    Closed,
    DecodeFigures,
    Error,
    Final,
    ProtocolError,
    Speech,
    Start,
    Stop,
)

FORMAT = {"rate": 16_000, "width": 2, "channels": 1}
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20)
EVENTS = st.builds(
    WyomingEvent, NAMES, st.dictionaries(NAMES, st.integers() | NAMES, max_size=3), st.binary()
)


def event(kind: str, data: dict[str, Any] | None = None, payload: bytes = b"") -> bytes:
    """As Wyoming's own client writes it: the data apart."""
    body = json.dumps(data or {}).encode()
    header = {"type": kind, "version": "1", "data_length": len(body)}
    if payload:
        header["payload_length"] = len(payload)
    return json.dumps(header).encode() + b"\n" + body + payload


def dialect() -> Wyoming:
    return Wyoming(Opening("0" * 32), model="base", languages=["de", "en"])


def actions(spoken: Wyoming, *data: bytes) -> list[Action]:
    return [action for one in data for action in spoken.receive(one)]


def told(spoken: Wyoming, *messages: Any) -> list[tuple[str, dict[str, Any]]]:
    """What the events say, read back."""
    text = "".join(frame for message in messages for frame in spoken.encode(message))
    return [(one.kind, one.data) for one in EventReader().read(text.encode())]


def final(text: str) -> Final:
    figures = DecodeFigures(rounds=1, proposed=0, accepted=0, reused=0, ms=1.0)
    return Final(
        utterance=0,
        start=0.0,
        end=1.0,
        text=text,
        language="de",
        no_speech=0.0,
        mean_logprob=0.0,
        decode=figures,
    )


CLOSED = Closed(received=1, speech=1, silence=0, refused=0, finals=1)


def test_a_session_is_what_lies_between_start_and_stop() -> None:
    found = actions(
        dialect(),
        event("transcribe", {"language": "de-DE", "transcript_terms": ["Anna"]}),
        event("audio-start", FORMAT | {"timestamp": None}),
        event("audio-chunk", FORMAT, b"\0\1" * 9),
        event("audio-stop"),
    )
    start = Start(language="de", hot_words=["Anna"], partials=False)
    assert found == [start, b"\0\1" * 9, Stop()]


def test_another_may_follow_and_begins_with_its_first_chunk() -> None:
    spoken = dialect()
    sound = event("audio-chunk", FORMAT | {"rate": 22_050, "channels": 2}, b"\0" * 8)
    for _ in range(2):
        found = actions(spoken, sound, event("audio-stop"))
        assert found == [Start(rate=22_050, channels=2, partials=False), b"\0" * 8, Stop()]


def test_describe_and_ping_are_answered() -> None:
    spoken = dialect()
    replies = actions(spoken, event("describe"), event("ping", {"text": "x"}))
    assert all(isinstance(one, Reply) for one in replies)
    (kind, about), pong = told(spoken, *replies)
    assert kind == "info"
    assert about["asr"][0]["models"][0]["languages"] == ["de", "en"]
    assert about["asr"][0]["supports_transcript_streaming"]
    assert pong == ("pong", {"text": "x"})


def test_unknown_events_are_passed_over() -> None:
    assert actions(dialect(), event("detect", {"names": []}), event("audio-stop")) == []


def test_a_transcript_comes_bit_by_bit_and_as_a_whole() -> None:
    spoken = dialect()
    found = told(spoken, Speech(event="start", utterance=0, at=0.5), final("Guten Tag."))
    found += told(spoken, final(""), final("Ja."), CLOSED)
    assert found == [
        ("voice-started", {"timestamp": 500}),
        ("transcript-start", {"language": "de"}),
        ("transcript-chunk", {"text": "Guten Tag."}),
        ("transcript-chunk", {"text": " Ja."}),
        ("transcript", {"text": "Guten Tag. Ja.", "language": "de"}),
        ("transcript-stop", {}),
    ]


def test_silence_has_an_empty_transcript() -> None:
    kinds = [kind for kind, _ in told(dialect(), CLOSED)]
    assert kinds == ["transcript-start", "transcript", "transcript-stop"]


def test_errors_are_events() -> None:
    error = Error(code="bad_request", message="no such language", fatal=False)
    assert told(dialect(), error) == [
        ("error", {"text": "no such language", "code": "bad_request"})
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"no event\n",
        b"[]\n",
        b'{"type": 1}\n',
        b'{"type": "audio-chunk", "payload_length": 99999999}\n',
        b'{"type": "audio-chunk", "data_length": -1}\n',
        event("audio-start", {"rate": 16_000, "width": 4, "channels": 1}),
        event("audio-start", {"rate": 16_000}),
        event("audio-start", FORMAT) + event("audio-chunk", FORMAT | {"rate": 8_000}, b"\0\0"),
        b"x" * 2**16,
    ],
)
def test_what_is_wrong_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        actions(dialect(), data)


@given(st.lists(EVENTS, max_size=5), st.data())
def test_events_are_read_however_they_are_cut(
    events: list[WyomingEvent], data: st.DataObject
) -> None:
    sent = b"".join(event(one.kind, one.data, one.payload) for one in events)
    reader = EventReader()
    read: list[WyomingEvent] = []
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        read += reader.read(sent[:size])
        sent = sent[size:]
    assert read == events


@given(EVENTS)
def test_what_is_written_is_read(one: WyomingEvent) -> None:
    read = list(EventReader().read(written(one).encode()))
    assert read == [WyomingEvent(one.kind, one.data)]


@given(
    st.lists(
        st.binary(max_size=60) | EVENTS.map(lambda e: event(e.kind, e.data, e.payload)), max_size=8
    )
)
def test_no_bytes_do_harm(pieces: list[bytes]) -> None:
    """Nothing but ProtocolError comes of them."""
    spoken = dialect()
    with suppress(ProtocolError):
        actions(spoken, *pieces)
