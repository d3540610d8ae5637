"""Deepgram's live transcription: `/v1/listen`.

The ranges of the finals tile the audio: each begins where the one before ended. All times are seconds from
the first byte of audio.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, assert_never

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
from streaming.dialects.figures import bare, confidence
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
    Ready,
    Speech,
    Start,
    Stop,
)

ENCODINGS: dict[str, Encoding] = {
    "linear16": "s16le",
    "linear32": "f32le",
    "mulaw": "mulaw",
    "alaw": "alaw",
}
INSTANT = 1e-3  # seconds: times that are closer are the same
DIGITS = 6  # after the point, of times
CLOSES = {4000: (1011, "NET-0001"), 4001: (1000, "time limit")}  # in place of captiond's own


class Options(Struct, forbid_unknown_fields=True):
    """Of the URL. Left out on purpose, for none may go unheeded: callback, multichannel, redact."""

    encoding: Annotated[
        Literal["linear16", "linear32", "mulaw", "alaw"],
        Meta(description="of raw audio; without it linear16, a WAV header is skipped"),
    ] = "linear16"
    sample_rate: Annotated[int, Meta(ge=4_000, le=384_000, description="Hz")] = 16_000
    channels: Annotated[int, Meta(ge=1, le=16, description="interleaved, mixed down to one")] = 1
    language: Annotated[
        str | None, Meta(description="`language` of `start`, without its region; multi detects it")
    ] = "en"
    language_hint: Annotated[
        list[str] | None, Meta(description="with language=multi: those to choose from")
    ] = None
    interim_results: Annotated[bool, Meta(description="`partials` of `start`")] = False
    endpointing: Annotated[
        int | bool | None,
        Meta(
            description="`endpoint_silence_ms` of `start`, within its bounds; false: no result is "
            "speech_final; true or left out: the daemon's"
        ),
    ] = None
    utterance_end_ms: Annotated[
        Annotated[int, Meta(ge=1_000, le=5_000)] | None,
        Meta(description="UtteranceEnd after so much without a word"),
    ] = None
    vad_events: Annotated[bool, Meta(description="SpeechStarted")] = False
    keyterm: Annotated[list[str] | None, Meta(description="`hot_words` of `start`")] = None
    keywords: Annotated[
        list[str] | None, Meta(description="`hot_words` of `start`, without their boost")
    ] = None
    model: Annotated[str | None, NO_EFFECT] = None
    version: Annotated[str | None, NO_EFFECT] = None
    tag: Annotated[list[str] | None, NO_EFFECT] = None
    extra: Annotated[list[str] | None, NO_EFFECT] = None
    mip_opt_out: Annotated[bool | None, NO_EFFECT] = None
    punctuate: Annotated[bool | None, NO_EFFECT] = None
    smart_format: Annotated[bool | None, NO_EFFECT] = None
    numerals: Annotated[bool | None, NO_EFFECT] = None
    dictation: Annotated[bool | None, NO_EFFECT] = None
    filler_words: Annotated[bool | None, NO_EFFECT] = None
    profanity_filter: Annotated[bool | None, NO_EFFECT] = None
    diarize: Annotated[bool | None, NO_EFFECT] = None
    diarize_model: Annotated[str | None, NO_EFFECT] = None
    detect_entities: Annotated[bool | None, NO_EFFECT] = None
    replace: Annotated[list[str] | None, NO_EFFECT] = None
    search: Annotated[list[str] | None, NO_EFFECT] = None
    no_delay: Annotated[bool | None, NO_EFFECT] = None
    token: Annotated[str | None, Meta(description="a token")] = None

    def start(self) -> Start:
        """What is asked of captiond."""
        language: Any = language_of(self.language)
        if language is None and self.language_hint:
            language = [language_of(one) for one in self.language_hint]
        silence = None if isinstance(self.endpointing, bool) else self.endpointing
        boosted = [word.partition(":")[0] for word in self.keywords or ()]
        asked = {
            "encoding": ENCODINGS[self.encoding],
            "rate": self.sample_rate,
            "channels": self.channels,
            "language": language,
            "partials": self.interim_results,
            "words": True,
            "hot_words": hot_words(self.keyterm, boosted),
            "endpoint_silence_ms": endpoint_silence(silence),
        }
        return from_object(Start, asked)


class Deepgram(Dialect):
    """One connection's. Raises ProtocolError for wrong options."""

    name = "deepgram"

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._options = from_query(Options, opening.query)
        self._start = self._options.start()
        self._clock = AudioClock(self._start)
        self._digest = hashlib.sha256()
        self._model = ""
        self._told = 0.0  # seconds up to where finals were told
        self._open: int | None = None  # the utterance that is spoken
        self._begun: dict[int, float] = {}  # where each utterance began
        self._finalizing: int | None = None  # the utterance that Finalize ended
        self._finalizes: deque[tuple[float, bool]] = deque()  # up to which second; answered
        self._last_word: float | None = None  # the end of the last one, until UtteranceEnd tells it

    def open(self) -> Iterable[Action]:
        """The URL says all."""
        return (self._start,)

    def receive(self, frame: str | bytes) -> Iterator[Action]:
        """Audio, or a message that controls it; an empty frame means nothing."""
        if isinstance(frame, bytes):
            self._clock.take(frame)
            self._digest.update(frame)
            yield frame
            if self._options.utterance_end_ms is not None:
                yield Reply(None)
            return
        match (parsed(frame) or {}).get("type"):
            case "KeepAlive":
                pass
            case "Finalize":
                yield Reply(("finalize", self._clock.seconds))
                yield Flush()
            case "CloseStream":
                yield Stop()
            case "Configure":
                text = "captiond cannot change a stream: open another one"
                about = {
                    "request_id": self._opening.uuid,
                    "code": "UNSUPPORTED",
                    "description": text,
                }
                yield Reply(line(type="ConfigureFailure", **about))
            case _:
                text = "text frames are KeepAlive, Finalize, CloseStream or Configure"
                yield Reply(_error("SchemaError", text, message=frame[:200]), wrong=True)

    def encode(self, message: Told) -> Iterator[str]:
        """Server messages."""
        match message:
            case Reply():
                yield from self._own(message.about)
            case Ready():
                self._model = message.model
            case Speech():
                yield from self._speech(message)
            case Partial():
                yield self._results(message.end, _alternative(message.text), final=False)
            case Final():
                yield from self._final(message)
            case Flushed():
                yield from self._flushed(message.at)
            case Error():
                yield _error(message.code, message.message)
            case Closed():
                yield self._metadata()
            case Configured() | Lag() | Heard():
                pass
            case _:
                assert_never(message)

    def close(self, code: int, reason: str) -> tuple[int, str]:
        """Deepgram's codes where captiond has its own."""
        return CLOSES.get(code, (code, reason))

    def _own(self, about: Any) -> Iterator[str]:
        match about:
            case str():
                yield about
            case ("finalize", at):
                self._finalizing = self._open
                self._finalizes.append((at, self._open is not None))
            case _:
                yield from self._utterance_end()

    def _speech(self, speech: Speech) -> Iterator[str]:
        if speech.event == "end":
            self._open = None
            return
        self._open = speech.utterance
        self._begun[speech.utterance] = speech.at
        if self._options.vad_events:
            yield line(type="SpeechStarted", channel=[0], timestamp=round(speech.at, DIGITS))

    def _final(self, final: Final) -> Iterator[str]:
        del self._begun[final.utterance]
        words = [
            {
                "word": bare(word),
                "start": round(word.start, DIGITS),
                "end": round(word.end, DIGITS),
                "confidence": word.probability,
                "punctuated_word": word.text.strip(),
                "language": final.language,
            }
            for word in final.words or ()
        ]
        best = _alternative(final.text, confidence=confidence(final), words=words)
        best["languages"] = [final.language] if final.language else []
        # Where speech goes on at the cut, the next utterance has begun at this one's end.
        cut = any(abs(at - final.end) < INSTANT for at in self._begun.values())
        ended = not cut and self._options.endpointing is not False
        flushed = final.utterance == self._finalizing
        yield self._results(final.end, best, final=True, ended=ended or flushed, flushed=flushed)
        self._told = final.end
        if final.text:
            self._last_word = final.words[-1].end if final.words else final.end
            yield from self._utterance_end()

    def _utterance_end(self) -> Iterator[str]:
        """Once enough has come behind the last word, and nobody speaks."""
        patience = self._options.utterance_end_ms
        if patience is None or self._last_word is None or self._begun:
            return
        if self._clock.seconds >= self._last_word + patience / 1000:
            at, self._last_word = round(self._last_word, DIGITS), None
            yield line(type="UtteranceEnd", channel=[0, 1], last_word_end=at)

    def _flushed(self, at: float) -> Iterator[str]:
        """Finalize is answered, if by an empty result."""
        while self._finalizes and self._finalizes[0][0] <= at + INSTANT:
            _, answered = self._finalizes.popleft()
            if not answered:
                # Of no length: the next utterance may reach back a little before this.
                nothing = _alternative("")
                yield self._results(self._told, nothing, final=True, ended=True, flushed=True)

    def _results(
        self,
        end: float,
        best: dict[str, Any],
        *,
        final: bool,
        ended: bool = False,
        flushed: bool = False,
    ) -> str:
        start = round(self._told, DIGITS)
        model = {"name": self._model, "version": "captiond", "arch": "whisper"}
        return line(
            type="Results",
            channel_index=[0, 1],
            duration=round(max(end, self._told) - start, DIGITS),
            start=start,
            is_final=final,
            speech_final=ended,
            channel={"alternatives": [best]},
            metadata={
                "request_id": self._opening.uuid,
                "model_info": model,
                "model_uuid": self._opening.uuid,
            },
            from_finalize=flushed,
        )

    def _metadata(self) -> str:
        began = datetime.fromtimestamp(self._opening.time, UTC)
        return line(
            type="Metadata",
            transaction_key="deprecated",
            request_id=self._opening.uuid,
            sha256=self._digest.hexdigest(),
            created=began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            duration=round(self._clock.seconds, DIGITS),
            channels=1,
        )


def _alternative(text: str, **about: Any) -> dict[str, Any]:
    return {"transcript": text, "confidence": 0.0, "words": []} | about


def _error(variant: str, description: str, **more: str) -> str:
    return line(type="Error", variant=variant, description=description, **more)
