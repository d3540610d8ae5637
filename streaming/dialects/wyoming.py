"""Wyoming, which Home Assistant speaks: events over a byte stream, one session from audio-start to audio-stop.

An event is a line of JSON, then data (JSON, of `data_length` bytes), then a payload (`payload_length`). Where
the stream is cut into reads makes no difference. Events of an unknown type are passed over, as Wyoming's own
servers do.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from streaming.dialects.dialect import Action, Dialect, Opening, Reply, Told
from streaming.dialects.options import NO_EFFECT, hot_words, language_of
from streaming.protocol import (
    Closed,
    Error,
    Final,
    ProtocolError,
    Speech,
    Start,
    Stop,
)

VERSION = "1.10.2"  # of the package whose events these are
LONGEST_LINE = 2**16  # bytes
LONGEST_DATA = 2**20
LONGEST_PAYLOAD = 2**20
WIDTH = 2  # bytes of a sample, the only one taken


@dataclass(frozen=True, slots=True)
class WyomingEvent:
    """One event, either way."""

    kind: str
    data: dict[str, Any]
    payload: bytes = b""


class Header(Struct, frozen=True, rename={"kind": "type"}):
    """The line that begins an event."""

    kind: str
    data: dict[str, Any] = {}
    data_length: Annotated[int, Meta(ge=0, le=LONGEST_DATA)] | None = None
    payload_length: Annotated[int, Meta(ge=0, le=LONGEST_PAYLOAD)] | None = None


class Transcribe(Struct, frozen=True):
    """The data of `transcribe`: how the audio that follows is to be heard."""

    name: Annotated[str, NO_EFFECT] | None = None
    language: Annotated[str, Meta(description="a code such as en; detected if absent")] | None = (
        None
    )
    context: Annotated[dict[str, Any], NO_EFFECT] | None = None
    vad_sensitivity: Annotated[Any, NO_EFFECT] = None
    transcript_names: Annotated[list[str], Meta(description="words to listen for")] | None = None
    transcript_terms: Annotated[list[str], Meta(description="words to listen for")] | None = None


class AudioFormat(Struct, frozen=True):
    """The data of `audio-start` and `audio-chunk`."""

    rate: Annotated[int, Meta(ge=4_000, le=384_000, description="Hz")]
    width: Annotated[int, Meta(ge=WIDTH, le=WIDTH, description="bytes of a sample: 16 bit, signed")]
    channels: Annotated[int, Meta(ge=1, le=16, description="interleaved; mixed down")]


_header_decoder = msgspec.json.Decoder(Header)
_data_decoder = msgspec.json.Decoder(dict[str, Any])


class EventReader:
    """Bytes in, events out."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._header: Header | None = None

    def read(self, data: bytes) -> Iterator[WyomingEvent]:
        """The events that `data` completes. Raises ProtocolError, after which nothing can be read."""
        self._bytes += data
        while (event := self._next()) is not None:
            yield event

    def _next(self) -> WyomingEvent | None:
        if self._header is None:
            end = self._bytes.find(b"\n", 0, LONGEST_LINE)
            if end < 0:
                if len(self._bytes) >= LONGEST_LINE:
                    raise ProtocolError("bad_json", "an event begins with a line of JSON")
                return None
            self._header = _decoded(_header_decoder, bytes(self._bytes[:end]))
            del self._bytes[: end + 1]
        first, second = self._header.data_length or 0, self._header.payload_length or 0
        if len(self._bytes) < first + second:
            return None
        data = dict(self._header.data)
        if first:
            data |= _decoded(_data_decoder, bytes(self._bytes[:first]))
        event = WyomingEvent(self._header.kind, data, bytes(self._bytes[first : first + second]))
        del self._bytes[: first + second]
        self._header = None
        return event


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError("bad_json", f"no Wyoming event: {error}") from None


class Wyoming(Dialect):
    """One connection's, over many sessions. model: its name. languages: the codes that it knows."""

    name = "wyoming"
    forgiving = False
    starts_late = True

    def __init__(self, _opening: Opening, *, model: str, languages: Sequence[str]) -> None:
        self._model = model
        self._languages = languages
        self._reader = EventReader()
        self._asked = Transcribe()
        self._format: AudioFormat | None = None  # of the session that takes audio
        self._texts: list[str] = []
        self._language: str | None = None

    def receive(self, frame: str | bytes) -> Iterable[Action]:
        """What the events that these bytes complete ask for."""
        assert isinstance(frame, bytes)
        for event in self._reader.read(frame):
            yield from self._obey(event)

    def _obey(self, event: WyomingEvent) -> Iterator[Action]:
        match event.kind:
            case "describe":
                yield Reply(WyomingEvent("info", info(self._model, self._languages)))
            case "ping":
                yield Reply(WyomingEvent("pong", {"text": event.data.get("text")}))
            case "transcribe":
                self._asked = _read(Transcribe, event)
            case "audio-start" if self._format is None:
                yield self._begin(_read(AudioFormat, event))
            case "audio-chunk":
                form = _read(AudioFormat, event)
                if self._format is None:  # audio-start may be missing
                    yield self._begin(form)
                if form != self._format:
                    text = "the format of the audio must not change before audio-stop"
                    raise ProtocolError("bad_audio", text)
                yield event.payload
            case "audio-stop" if self._format is not None:
                self._format = None
                yield Stop()
            case _:
                pass

    def _begin(self, form: AudioFormat) -> Start:
        asked, self._asked = self._asked, Transcribe()
        self._format = form
        self._texts = []
        self._language = None
        return Start(
            rate=form.rate,
            channels=form.channels,
            language=language_of(asked.language),
            hot_words=hot_words([*(asked.transcript_names or ()), *(asked.transcript_terms or ())]),
            partials=False,
        )

    def encode(self, message: Told) -> Iterable[str]:
        """The events that tell of it."""
        return map(written, self._events(message))

    def _events(self, message: Told) -> Iterator[WyomingEvent]:
        match message:
            case Reply():
                yield message.about
            case Speech():
                kind = "voice-started" if message.event == "start" else "voice-stopped"
                yield WyomingEvent(kind, {"timestamp": round(message.at * 1000)})
            case Final() if message.text:
                if not self._texts:
                    self._language = message.language
                    yield WyomingEvent("transcript-start", {"language": message.language})
                glue = " " if self._texts else ""
                self._texts.append(message.text)
                yield WyomingEvent("transcript-chunk", {"text": glue + message.text})
            case Error():
                yield WyomingEvent("error", {"text": message.message, "code": message.code})
            case Closed():
                if not self._texts:
                    yield WyomingEvent("transcript-start", {})
                whole = {"text": " ".join(self._texts), "language": self._language}
                yield WyomingEvent("transcript", whole)
                yield WyomingEvent("transcript-stop", {})
            case _:
                pass


def _read(kind: type[Any], event: WyomingEvent) -> Any:
    try:
        return msgspec.convert(event.data, kind)
    except msgspec.ValidationError as error:
        raise ProtocolError("bad_message", f"{event.kind}: {error}") from None


def written(event: WyomingEvent) -> str:
    """An event without a payload, as it is sent; lengths count its bytes in UTF-8."""
    data = msgspec.json.encode(event.data)
    header = {"type": event.kind, "version": VERSION, "data_length": len(data)}
    return f"{msgspec.json.encode(header).decode()}\n{data.decode()}"


def info(model: str, languages: Sequence[str]) -> dict[str, Any]:
    """What `describe` is answered."""
    attribution = {"name": "captiond", "url": ""}
    whisper = {
        "name": model,
        "languages": list(languages),
        "attribution": {"name": "OpenAI", "url": "https://github.com/openai/whisper"},
        "installed": True,
        "description": f"Whisper {model}",
        "version": None,
    }
    program = {
        "name": "captiond",
        "attribution": attribution,
        "installed": True,
        "description": "captions of live speech",
        "version": None,
        "models": [whisper],
        "supports_transcript_streaming": True,
    }
    return {
        "asr": [program],
        "tts": [],
        "handle": [],
        "intent": [],
        "wake": [],
        "mic": [],
        "snd": [],
    }
