"""OpenAI's Realtime API for transcription: `/v1/realtime`, in the form of today and in that of its beta.

Here a client's events are read and checked; what becomes of its audio is streaming/dialects/openai_items.py's.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Any, assert_never

from streaming.dialects.dialect import (
    Action,
    AudioClock,
    Check,
    Dialect,
    Opening,
    Reply,
    Told,
    line,
    parsed,
)
from streaming.dialects.openai_items import Event, Items
from streaming.dialects.openai_options import (
    LIVE_MODELS,
    LOGPROBS,
    BetaSession,
    Format,
    Session,
    Settled,
    Transcription,
    TurnDetection,
)
from streaming.dialects.options import endpoint_silence, from_object, hot_words
from streaming.protocol import (
    Closed,
    Configured,
    Encoding,
    Error,
    Final,
    Flush,
    Flushed,
    Heard,
    Lag,
    Partial,
    ProtocolError,
    Ready,
    Speech,
    Start,
)

ENCODINGS: dict[str, tuple[Encoding, int]] = {
    "audio/pcm": ("s16le", 24_000),
    "audio/pcmu": ("mulaw", 8_000),
    "audio/pcma": ("alaw", 8_000),
}
LEAST_COMMIT = 0.1  # seconds
LIFETIME = 3_600  # seconds that a session is said to be good for


class RealtimeError(ProtocolError):
    """What a client got wrong, with the names that OpenAI gives such things."""

    def __init__(self, reason: str, message: str, param: str | None = None) -> None:
        super().__init__("bad_message", message)
        self.reason = reason
        self.param = param


class OpenAiRealtime(Dialect):
    """One connection's."""

    name = "openai_realtime"
    starts_late = True

    def __init__(self, opening: Opening) -> None:
        query = dict(opening.query)
        self._opening = opening
        self._beta = "realtime=" in opening.headers.get("openai-beta", "") or (
            "openai-beta.realtime-v1" in opening.headers.get("sec-websocket-protocol", "")
        )
        silence = opening.settings.endpoint_silence_ms
        self._settled = Settled(
            Format(),
            Transcription(model=query.get("model", "whisper-1")),
            TurnDetection(silence_duration_ms=silence, threshold=0.5, prefix_padding_ms=300),
        )
        self._started: tuple[Start, bool] | None = None
        self._clock = AudioClock(Start())
        self._events = 0
        self._items = Items(opening.name)
        self._items.beta = self._beta

    def open(self) -> Iterable[Action]:
        """The server speaks first."""
        return (self._session("created"),)

    def receive(self, frame: str | bytes) -> Iterator[Action]:
        """One client event."""
        if isinstance(frame, bytes):
            raise ProtocolError("bad_audio", "audio comes in input_audio_buffer.append, as base64")
        event: dict[str, Any] = {}
        try:
            event = _event_of(frame)
            yield from self._obeyed(event)
        except RealtimeError as error:
            about = _error(error.reason, str(error), error.param, event.get("event_id"))
            yield Reply(about, wrong=True)

    def _obeyed(self, event: dict[str, Any]) -> Iterator[Action]:
        match event.get("type"):
            case "input_audio_buffer.append":
                yield from self._append(event)
            case "input_audio_buffer.commit":
                yield from self._commit()
            case "input_audio_buffer.clear":
                self._items.cut = self._clock.seconds
                yield Reply(("clear", self._items.cut))
                if self._started is not None:
                    yield Flush()
            case "session.update" | "transcription_session.update" as kind:
                self._beta = self._items.beta = kind.startswith("transcription")
                yield from self._update(event.get("session"))
            case other:
                text = f"Invalid value: {str(other)[:100]!r}. captiond transcribes: it takes "
                text += "session.update and input_audio_buffer.append, .commit and .clear."
                raise RealtimeError("invalid_value", text, "type")

    def _append(self, event: dict[str, Any]) -> Iterator[Action]:
        try:
            audio = b64decode(event["audio"], validate=True)
        except KeyError:
            text = "Missing required parameter: 'audio'."
            raise RealtimeError("missing_required_parameter", text, "audio") from None
        except (binascii.Error, TypeError, ValueError):
            text = "Invalid 'audio'. Expected base64-encoded audio bytes."
            raise RealtimeError("invalid_value", text, "audio") from None
        if self._started is None:
            start = self._start(self._settled)
            yield start
            self._started = start, self._settled.turn_detection is None
            self._items.live = start.partials
            self._clock = AudioClock(start)
        self._clock.take(audio)
        yield audio

    def _commit(self) -> Iterator[Action]:
        waiting = self._clock.seconds - self._items.cut
        if waiting < LEAST_COMMIT:
            text = "Error committing input audio buffer: buffer too small. Expected at least 100ms "
            text += f"of audio, but buffer only has {1000 * waiting:.2f}ms of audio."
            raise RealtimeError("input_audio_buffer_commit_empty", text)
        self._items.cut = self._clock.seconds
        yield Reply(("commit", self._items.cut))
        yield Flush()

    def _update(self, session: object) -> Iterator[Action]:
        if not isinstance(session, dict):
            text = "Missing required parameter: 'session'."
            raise RealtimeError("missing_required_parameter", text, "session")
        try:
            if self._beta:
                beta = from_object(BetaSession, session)
                settled = self._settled.updated(beta.modern(), beta.include)
            else:
                asked = from_object(Session, session)
                heard = asked.audio.input if asked.audio else None
                modern = heard or BetaSession().modern()
                settled = self._settled.updated(modern, asked.include)
            _check_rate(settled.format)
            start = self._start(settled)
        except ProtocolError as error:
            raise RealtimeError("invalid_value", str(error), "session") from None
        if self._started not in (None, (start, settled.turn_detection is None)):
            text = "captiond cannot change this once audio has come: open another connection."
            raise RealtimeError("session_update_not_allowed", text, "session")
        yield Check(start)
        self._settled = settled
        self._items.manual = settled.turn_detection is None
        self._items.logprobs = start.words
        yield self._session("updated")

    def _start(self, settled: Settled) -> Start:
        words, turns = settled.transcription or Transcription(), settled.turn_detection
        encoding, rate = ENCODINGS[settled.format.type]
        silence = None if turns is None else turns.silence_duration_ms
        live = words.model in LIVE_MODELS
        asked = {
            "encoding": encoding,
            "rate": rate,
            "language": words.language or words.languages or None,
            "prompt": words.prompt or "",
            "hot_words": hot_words(words.keywords),
            "endpoint_silence_ms": endpoint_silence(silence),
            "partials": live,
            "stability": "commit" if live else "revise",
            "words": LOGPROBS in (settled.include or ()),
        }
        return from_object(Start, asked)

    def encode(self, message: Told) -> Iterator[str]:
        """Server events."""
        items = self._items
        match message:
            case Reply(about=(mark, at)):
                events = items.clear(at) if mark == "clear" else items.commit(at)
            case Reply():
                events = iter((message.about,))
            case Speech():
                events = items.speech(message)
            case Partial():
                events = items.partial(message)
            case Final():
                events = items.final(message)
            case Flushed():
                events = items.flushed(message.at)
            case Error():
                events = self._wrong(message)
            case Ready() | Configured() | Lag() | Heard() | Closed():
                events = iter(())
            case _:
                assert_never(message)
        yield from map(self._event, events)

    def _wrong(self, error: Error) -> Iterator[Event]:
        if error.code == "decode_failed":
            self._items.failure = error.message
        else:
            yield _error(error.code, error.message)

    def _event(self, about: Event) -> str:
        self._events += 1
        return line(event_id=f"event_{self._opening.name[:16]}{self._events:05}", **about)

    def _session(self, what: str) -> Reply:
        kind = "transcription_session" if self._beta else "session"
        about = {
            "id": f"sess_{self._opening.name}",
            "object": "realtime.transcription_session",
            "expires_at": int(self._opening.time) + LIFETIME,
            **self._settled.shown(beta=self._beta),
        }
        return Reply({"type": f"{kind}.{what}", "session": about})


def _event_of(frame: str) -> dict[str, Any]:
    event = parsed(frame)
    if event is None:
        raise RealtimeError("invalid_json", "We could not parse the JSON body of your event.")
    return event


def _check_rate(form: Format) -> None:
    if form.rate not in (None, ENCODINGS[form.type][1]):
        raise ProtocolError("bad_message", f"`rate` of {form.type} is {ENCODINGS[form.type][1]}")


def _error(
    code: str, message: str, param: str | None = None, event_id: object = None
) -> dict[str, Any]:
    about = {"type": "invalid_request_error", "code": code, "message": message, "param": param}
    return {"type": "error", "error": about | {"event_id": event_id}}
