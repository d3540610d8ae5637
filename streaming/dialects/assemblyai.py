"""AssemblyAI's streaming, third version: `/v3/ws`.

A *turn* is an utterance. Each message about it repeats the whole of it; its last has `end_of_turn`.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, assert_never

import msgspec
from msgspec import Meta, Struct

from streaming.dialects.dialect import (
    Action,
    AudioClock,
    Dialect,
    Opening,
    Reply,
    Told,
    line,
    parsed,
)
from streaming.dialects.figures import confidence, milliseconds
from streaming.dialects.options import (
    NO_EFFECT,
    endpoint_silence,
    from_object,
    from_query,
    hot_words,
    language_of,
)
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
    Stop,
)

ENCODINGS: dict[str, Encoding] = {"pcm_s16le": "s16le", "pcm_mulaw": "mulaw"}
LIFETIME = 3 * 3_600  # seconds that a session is said to be good for
CODES = {"bad_json": 3006, "bad_message": 3006, "bad_audio": 3007, "idle": 3005, "time_limit": 3005}
OTHER_CODE = 3005
CLOSES = {4000: (3005, "Session expired: inactivity"), 4001: (3005, "Session expired: time limit")}
LISTS = ("keyterms_prompt", "language_codes", "redact_pii_policies")  # JSON in the URL


class Options(Struct, forbid_unknown_fields=True):
    """Of the URL. Left out on purpose, for none may go unheeded: redact_pii, webhook_url, llm_gateway."""

    sample_rate: Annotated[int, Meta(ge=4_000, le=384_000, description="Hz")] = 16_000
    encoding: Annotated[Literal["pcm_s16le", "pcm_mulaw"], Meta(description="of the audio")] = (
        "pcm_s16le"
    )
    language_code: Annotated[
        str | None, Meta(description="`language` of `start`; left out, it is detected")
    ] = None
    language_codes: Annotated[
        list[str] | None, Meta(description="several, of which the language is detected")
    ] = None
    language_detection: Annotated[
        bool | None,
        Meta(description="turns tell their language; it is detected unless it is given"),
    ] = None
    max_turn_silence: Annotated[
        int | None, Meta(description="`endpoint_silence_ms` of `start`, within its bounds")
    ] = None
    min_turn_silence: Annotated[
        int | None, Meta(description="the same, where max_turn_silence is left out")
    ] = None
    min_end_of_turn_silence_when_confident: Annotated[
        int | None, Meta(description="the older name of min_turn_silence")
    ] = None
    include_partial_turns: Annotated[
        bool | None, Meta(description="false: `partials` of `start`")
    ] = None
    keyterms_prompt: Annotated[list[str] | None, Meta(description="`hot_words` of `start`")] = None
    prompt: Annotated[str | None, Meta(description="`prompt` of `start`")] = None
    token: Annotated[str | None, Meta(description="a token")] = None
    format_turns: Annotated[bool | None, NO_EFFECT] = None
    speech_model: Annotated[str | None, NO_EFFECT] = None
    mode: Annotated[str | None, NO_EFFECT] = None
    domain: Annotated[str | None, NO_EFFECT] = None
    end_of_turn_confidence_threshold: Annotated[float | None, NO_EFFECT] = None
    vad_threshold: Annotated[float | None, NO_EFFECT] = None
    inactivity_timeout: Annotated[int | None, NO_EFFECT] = None
    filter_profanity: Annotated[bool | None, NO_EFFECT] = None
    speaker_labels: Annotated[bool | None, NO_EFFECT] = None
    speaker_labels_revision_interval_ms: Annotated[int | None, NO_EFFECT] = None
    max_speakers: Annotated[int | None, NO_EFFECT] = None
    voice_focus: Annotated[str | None, NO_EFFECT] = None
    voice_focus_threshold: Annotated[float | None, NO_EFFECT] = None
    noise_suppression_model: Annotated[str | None, NO_EFFECT] = None
    noise_suppression_threshold: Annotated[float | None, NO_EFFECT] = None
    continuous_partials: Annotated[bool | None, NO_EFFECT] = None
    customer_support_audio_capture: Annotated[bool | None, NO_EFFECT] = None
    agent_context: Annotated[str | None, NO_EFFECT] = None
    interruption_delay: Annotated[int | None, NO_EFFECT] = None
    turn_left_pad_ms: Annotated[int | None, NO_EFFECT] = None
    session_heartbeat: Annotated[bool | None, NO_EFFECT] = None
    acknowledge_silence: Annotated[bool | None, NO_EFFECT] = None

    def start(self) -> Start:
        """What is asked of captiond."""
        silences = (
            self.max_turn_silence,
            self.min_turn_silence,
            self.min_end_of_turn_silence_when_confident,
        )
        silence = next((one for one in silences if one is not None), None)
        several = [language_of(one) for one in self.language_codes or ()]
        asked = {
            "encoding": ENCODINGS[self.encoding],
            "rate": self.sample_rate,
            "language": language_of(self.language_code) or several or None,
            "partials": self.include_partial_turns is not False,
            "words": True,
            "prompt": self.prompt or "",
            "hot_words": hot_words(self.keyterms_prompt),
            "endpoint_silence_ms": endpoint_silence(silence),
        }
        return from_object(Start, asked)


class AssemblyAi(Dialect):
    """One connection's. Raises ProtocolError for wrong options."""

    name = "assemblyai"
    forgiving = False

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._options = from_query(Options, list(_unpacked(opening)))
        self._start = self._options.start()
        self._clock = AudioClock(self._start)

    def open(self) -> Iterable[Action]:
        """The URL says all."""
        return (self._start,)

    def receive(self, frame: str | bytes) -> Iterator[Action]:
        """Audio, or a message that controls it."""
        if isinstance(frame, bytes):
            self._clock.take(frame)
            yield frame
            return
        match (parsed(frame) or {}).get("type"):
            case "Terminate":
                yield Stop()
            case "ForceEndpoint":
                yield Flush()
            case "KeepAlive":
                pass
            case "UpdateConfiguration":
                warning = "captiond cannot change a stream: nothing is updated"
                yield Reply(line(type="Warning", warning_code=OTHER_CODE, warning=warning))
            case _:
                text = "Invalid Message: text frames are Terminate, ForceEndpoint, KeepAlive or "
                raise ProtocolError("bad_message", text + "UpdateConfiguration")

    def encode(self, message: Told) -> Iterator[str]:
        """Server messages."""
        match message:
            case Reply():
                yield message.about
            case Ready():
                yield self._begin(message.model)
            case Speech(event="start"):
                yield line(type="SpeechStarted", timestamp=milliseconds(message.at))
            case Partial():
                yield self._turn(message, [], ended=False)
            case Final():
                yield self._turn(message, _words(message), ended=True, sure=confidence(message))
            case Error(code="decode_failed"):
                yield line(type="Warning", warning_code=OTHER_CODE, warning=message.message)
            case Error():
                code = CODES.get(message.code, OTHER_CODE)
                yield line(type="Error", error_code=code, error=message.message)
            case Closed():
                seconds = round(self._clock.seconds)
                about = {"audio_duration_seconds": seconds, "session_duration_seconds": seconds}
                yield line(type="Termination", **about)
            case Speech() | Configured() | Flushed() | Lag() | Heard():
                pass
            case _:
                assert_never(message)

    def close(self, code: int, reason: str) -> tuple[int, str]:
        """AssemblyAI's codes where captiond has its own."""
        return CLOSES.get(code, (code, reason))

    def _begin(self, model: str) -> str:
        expires = datetime.fromtimestamp(self._opening.time + LIFETIME, UTC)
        about = {"model": model, "api_version": "v3"}
        ends = expires.isoformat(timespec="seconds").replace("+00:00", "Z")
        return line(type="Begin", id=self._opening.uuid, expires_at=ends, configuration=about)

    def _turn(
        self, said: Partial | Final, words: list[dict[str, Any]], *, ended: bool, sure: float = 0.0
    ) -> str:
        about: dict[str, Any] = {}
        if self._options.language_detection and isinstance(said, Final):
            about["language_code"] = said.language
        return line(
            type="Turn",
            turn_order=said.utterance,
            turn_is_formatted=ended,
            end_of_turn=ended,
            transcript=said.text,
            end_of_turn_confidence=sure,
            words=words,
            **about,
        )


def _unpacked(opening: Opening) -> Iterator[tuple[str, str]]:
    """The query, its lists taken apart. Raises ProtocolError for what is no list of texts."""
    for name, value in opening.query:
        if name not in LISTS or not value.startswith("["):
            yield name, value
            continue
        try:
            values = msgspec.json.decode(value, type=list[str])
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise ProtocolError("bad_message", f"`{name}` is a list of texts in JSON") from None
        for one in values:
            yield name, one


def _words(final: Final) -> list[dict[str, Any]]:
    return [
        {
            "text": word.text.strip(),
            "start": milliseconds(word.start),
            "end": milliseconds(word.end),
            "confidence": word.probability,
            "word_is_final": True,
        }
        for word in final.words or ()
    ]
