import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from streaming import protocol
from streaming.protocol import (
    ClientMessage,
    Closed,
    Configure,
    Configured,
    DecodeFigures,
    Error,
    ErrorCode,
    Final,
    Flush,
    Lag,
    Limits,
    Partial,
    ProtocolError,
    Ready,
    ServerMessage,
    Speech,
    Start,
    Stop,
    decode_client,
    decode_server,
    encode,
)
from tests.support.python import ROOT, python

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=16)
COUNT = st.integers(0, 2**53)
SECONDS = st.floats(0, 1e6)
FIGURES = st.builds(
    DecodeFigures, rounds=COUNT, proposed=COUNT, accepted=COUNT, reused=COUNT, ms=SECONDS
)

CLIENT_MESSAGES: st.SearchStrategy[ClientMessage] = st.one_of(
    st.builds(Flush),
    st.builds(
        Configure,
        language=st.just(UNSET) | st.none() | CODE | st.lists(CODE, min_size=1, max_size=5),
        task=st.sampled_from([UNSET, "transcribe", "translate"]),
        prompt=st.just(UNSET) | TEXT,
    ),
    st.builds(Stop),
    st.builds(
        Start,
        encoding=st.sampled_from(["s16le", "f32le", "mulaw", "alaw"]),
        rate=st.integers(4_000, 384_000),
        channels=st.integers(1, 16),
        language=st.none() | CODE | st.lists(CODE, min_size=1, max_size=5),
        task=st.sampled_from(["transcribe", "translate"]),
        temperature=st.floats(0, 2),
        seed=st.integers(0, 2**63 - 1),
        partials=st.booleans(),
        prompt=TEXT,
    ),
)

SERVER_MESSAGES: st.SearchStrategy[ServerMessage] = st.one_of(
    st.builds(
        Ready,
        session=TEXT,
        model=TEXT,
        drafter=st.none() | TEXT,
        limits=st.builds(
            Limits, frame_bytes=COUNT, utterance_seconds=SECONDS, buffered_seconds=SECONDS
        ),
    ),
    st.builds(Speech, event=st.sampled_from(["start", "end"]), utterance=COUNT, at=SECONDS),
    st.builds(Partial, utterance=COUNT, start=SECONDS, end=SECONDS, text=TEXT, stable=COUNT),
    st.builds(
        Final,
        utterance=COUNT,
        start=SECONDS,
        end=SECONDS,
        text=TEXT,
        language=TEXT,
        no_speech=st.floats(0, 1),
        mean_logprob=st.floats(-100, 0),
        decode=FIGURES,
    ),
    st.builds(Configured, at=SECONDS),
    st.builds(Lag, seconds=SECONDS, shedding=st.sampled_from(["nothing", "partials"])),
    st.builds(
        Error, code=st.sampled_from(["bad_json", "internal"]), message=TEXT, fatal=st.booleans()
    ),
    st.builds(Closed, received=COUNT, speech=COUNT, silence=COUNT, refused=COUNT, finals=COUNT),
)

# JSON that comes near a message: the true keys and tags with any values.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
NEAR_MISSES = st.dictionaries(
    st.sampled_from(["type", "rate", "language", "encoding", "seed", "text", "x"]),
    st.sampled_from(["start", "flush", "stop", "final", "s16le"]) | VALUES,
).map(json.dumps)


@given(CLIENT_MESSAGES)
def test_what_a_client_encodes_the_daemon_decodes(message: ClientMessage) -> None:
    assert decode_client(encode(message)) == message


@given(SERVER_MESSAGES)
def test_what_the_daemon_encodes_a_client_decodes(message: ServerMessage) -> None:
    assert decode_server(encode(message)) == message


def message_or_code(
    decode: Callable[[str], ClientMessage | ServerMessage], text: str
) -> ClientMessage | ServerMessage | ErrorCode:
    """What `decode` makes of `text`; any exception but ProtocolError passes through."""
    try:
        return decode(text)
    except ProtocolError as error:
        return error.code


@pytest.mark.parametrize("decode", [decode_client, decode_server])
@given(text=st.text() | NEAR_MISSES | VALUES.map(json.dumps))
def test_any_text_is_a_message_or_a_protocol_error(
    decode: Callable[[str], ClientMessage | ServerMessage], text: str
) -> None:
    outcome = message_or_code(decode, text)
    if isinstance(outcome, str):
        assert outcome in {"bad_json", "bad_message"}
    else:
        assert decode(encode(outcome)) == outcome


def test_every_field_of_start_has_a_default() -> None:
    """The smallest start is 16 kHz mono int16, transcribed greedily, language detected."""
    assert decode_client('{"type": "start"}') == Start()
    assert (Start().encoding, Start().rate, Start().channels) == ("s16le", 16_000, 1)
    assert (Start().language, Start().temperature) == (None, 0.0)


NO_JSON = {
    "": "JSON",
    '{"type": "start"': "truncated",
    "\ud800": "UTF-8",
    '{"a":' * 5_000: "nested",
}
KINDS = "one of: start, resume, configure, flush, stop"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *NO_JSON.items(),
        ("[]", KINDS),
        ("{}", KINDS),
        ('{"type": "begin"}', "'begin'"),
        ('{"type": "begin"}', KINDS),
        ('{"type": ["start"]}', KINDS),
        ('{"type": "begin", oh', KINDS),
        (
            '{"type": "start", "rat": 1}',
            "no field `rat` (did you mean `rate`?); the fields of `start`: encoding, rate,",
        ),
        ('{"type": "flush", "now": true}', "the fields of `flush`: none"),
        ('{"type": "start", "rate": "8k"}', "`rate` of `start` must be a whole number"),
        ('{"type": "start", "rate": 3999}', "a whole number from 4000 to 384000"),
        ('{"type": "start", "channels": 0}', "`channels` of `start` must"),
        ('{"type": "start", "encoding": "mp3"}', "must be one of s16le, f32le, mulaw, alaw"),
        ('{"type": "start", "temperature": 2.5}', "a number from 0.0 to 2.0"),
        ('{"type": "start", "language": []}', "a list of 1 to 100"),
        ('{"type": "start", "language": "seventeen letters"}', "at most 16 characters"),
        (
            '{"type": "start", "language": ["seventeen letters"]}',
            "each a text of at most 16 characters",
        ),
        ('{"type": "start", "cap_ms": 9}', "from 10000 to 30000, or null"),
        (
            '{"type": "configure", "rate": 8000}',
            "the fields of `configure`: language, task, prompt,",
        ),
        ('{"type": "configure", "prompt": 1}', "must be a text of at most 1000 characters"),
        (
            '{"type": "configure", "language": 1}',
            "a list of 1 to 100 of these, each a text of at most 16 characters, or null",
        ),
        ('{"type": "start", "seed": -1}', "from 0 to 9223372036854775807"),
    ],
)
def test_a_wrong_message_is_told_what_is_accepted(text: str, said: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_client(text)
    assert caught.value.code == ("bad_json" if text in NO_JSON else "bad_message")
    assert said in str(caught.value)


def test_messages_of_the_other_direction_are_refused() -> None:
    with pytest.raises(ProtocolError, match=KINDS):
        decode_client('{"type": "lag", "seconds": 1.0, "shedding": "nothing"}')
    with pytest.raises(ProtocolError, match="one of: ready, speech, partial, final, configured"):
        decode_server('{"type": "stop"}')


@given(SERVER_MESSAGES)
def test_a_newer_daemon_may_say_more(message: ServerMessage) -> None:
    """A client passes over fields that it does not know, at any depth."""
    text = json.loads(encode(message), object_hook=lambda fields: fields | {"new": {"type": "x"}})
    assert decode_server(json.dumps(text)) == message


@given(CLIENT_MESSAGES)
def test_a_newer_client_is_told_what_the_daemon_does_not_know(message: ClientMessage) -> None:
    """It asks for something: passing over it would be a silent no."""
    text = json.dumps(json.loads(encode(message)) | {"new": 1})
    with pytest.raises(ProtocolError, match="has no field `new`; the fields of"):
        decode_client(text)


@pytest.mark.parametrize(("length", "kept"), [(500, 500), (501, 499)])
def test_a_long_error_message_is_cut(length: int, kept: int) -> None:
    """It may quote a megabyte that a client sent; whoever reads it need not have all of that back."""
    error = Error(code="bad_message", message="x" * length, fatal=False)
    assert error.message == "x" * kept + "…" * (500 - kept)


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Flush().x = 1  # type: ignore[attr-defined]  # the point of the test
    with pytest.raises(AttributeError):
        Start().rate = 8_000  # type: ignore[misc]  # the point of the test


def test_the_published_schema_is_what_the_module_prints() -> None:
    """After a change, run `python -m streaming.protocol > docs/protocol.schema.json`."""
    printed = python("-m", "streaming.protocol")
    assert (ROOT / "docs" / "protocol.schema.json").read_text("utf-8") == printed
    assert json.loads(printed) == protocol.schema()


def test_the_schema_names_every_message() -> None:
    schema = protocol.schema()
    mapping = schema["properties"]["client"]["discriminator"]["mapping"]
    assert set(mapping) == {"start", "resume", "configure", "flush", "stop"}
    kinds = schema["$defs"].items()
    closed_kinds = {kind for kind, fields in kinds if not fields.get("additionalProperties", True)}
    assert closed_kinds == {"Start", "Resume", "Configure", "Flush", "Stop"}
    assert {"Ready", "Speech", "Partial", "Final", "Lag", "Error", "Closed"} < set(schema["$defs"])
