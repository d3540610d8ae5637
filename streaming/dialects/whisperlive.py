"""WhisperLive: its clients' first message says all, float32 audio follows, segments come back.

A segment is an utterance. Each message has the newest completed ones, and at most one more that is not.
"""

from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any, Literal, assert_never

from msgspec import Meta, Struct

from streaming.dialects.dialect import Action, Dialect, Opening, Reply, Told, line, parsed
from streaming.dialects.options import NO_EFFECT, from_object, hot_words, language_of
from streaming.protocol import (
    Closed,
    Configured,
    Encoding,
    Error,
    Final,
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

END_OF_AUDIO = b"END_OF_AUDIO"
BACKEND = "faster_whisper"  # clients keep what a server of another backend says nowhere
WAIT_MINUTES = 1.0  # nobody knows when a session ends
ENCODINGS: dict[str, Encoding] = {"float32": "f32le", "int16": "s16le"}


class Options(Struct):
    """The first message. Other fields are passed over, as WhisperLive does."""

    uid: Annotated[str, Meta(description="stands in every answer")]
    language: Annotated[str | None, Meta(description="`language` of `start`; null detects it")] = (
        None
    )
    task: Annotated[Literal["transcribe", "translate"], Meta(description="`task` of `start`")] = (
        "transcribe"
    )
    send_last_n_segments: Annotated[
        Annotated[int, Meta(ge=1, le=1_000)] | None,
        Meta(description="most completed segments in a message"),
    ] = 10
    hotwords: Annotated[str | None, Meta(description="`hot_words` of `start`, between commas")] = (
        None
    )
    initial_prompt: Annotated[str | None, Meta(description="`prompt` of `start`")] = None
    word_timestamps: Annotated[bool | None, Meta(description="`words` of `start`")] = False
    audio_format: Annotated[
        Literal["float32", "int16"] | None, Meta(description="of the audio, 16 kHz")
    ] = "float32"
    model: Annotated[str | None, NO_EFFECT] = None
    use_vad: Annotated[bool | None, NO_EFFECT] = True
    vad_parameters: Annotated[dict[str, Any] | None, NO_EFFECT] = None
    max_clients: Annotated[int | None, NO_EFFECT] = None
    max_connection_time: Annotated[int | None, NO_EFFECT] = None
    no_speech_thresh: Annotated[float | None, NO_EFFECT] = None
    clip_audio: Annotated[bool | None, NO_EFFECT] = None
    same_output_threshold: Annotated[int | None, NO_EFFECT] = None
    enable_translation: Annotated[bool | None, NO_EFFECT] = None
    target_language: Annotated[str | None, NO_EFFECT] = None
    enable_diarization: Annotated[bool | None, NO_EFFECT] = None
    max_speakers: Annotated[int | None, NO_EFFECT] = None
    known_speakers: Annotated[list[Any] | None, NO_EFFECT] = None

    def start(self) -> Start:
        """What is asked of captiond."""
        asked = {
            "encoding": ENCODINGS[self.audio_format or "float32"],
            "language": language_of(self.language),
            "task": self.task,
            "words": bool(self.word_timestamps),
            "prompt": self.initial_prompt or "",
            "hot_words": hot_words((self.hotwords or "").split(",")),
        }
        return from_object(Start, asked)


class WhisperLive(Dialect):
    """One connection's."""

    name = "whisperlive"
    forgiving = False

    def __init__(self, _opening: Opening) -> None:
        self._options: Options | None = None
        self._uid = ""
        self._completed: deque[dict[str, Any]] = deque()
        self._spoken = False  # whether the last message had a segment that was not completed
        self._language = False  # whether it has been told

    def receive(self, frame: str | bytes) -> Iterator[Action]:
        """The options, then audio, then its end."""
        if self._options is None:
            yield self._begun(frame)
        elif isinstance(frame, str):
            raise ProtocolError("bad_order", "after the options audio comes, in binary frames")
        elif frame == END_OF_AUDIO:
            yield Stop()
        else:
            yield frame

    def _begun(self, frame: str | bytes) -> Start:
        about = parsed(frame)
        if about is None:
            raise ProtocolError("bad_json", "the first message is a JSON object with the options")
        uid = about.get("uid")
        self._uid = uid if isinstance(uid, str) else ""
        self._options = from_object(Options, about)
        self._completed = deque(maxlen=self._options.send_last_n_segments or 10)
        return self._options.start()

    def encode(self, message: Told) -> Iterator[str]:
        """Status, and segments."""
        match message:
            case Ready():
                yield line(uid=self._uid, message="SERVER_READY", backend=BACKEND)
            case Partial():
                self._spoken = True
                yield self._segments(_segment(message, completed=False))
            case Final():
                yield from self._final(message)
            case Error(code="time_limit"):
                yield line(uid=self._uid, message="DISCONNECT")
            case Error(code="busy"):
                yield line(uid=self._uid, status="WAIT", message=WAIT_MINUTES)
            case Error():
                status = "ERROR" if message.fatal else "WARNING"
                yield line(uid=self._uid, status=status, message=message.message)
            case Speech() | Configured() | Flushed() | Lag() | Heard() | Closed() | Reply():
                pass
            case _:
                assert_never(message)

    def _final(self, final: Final) -> Iterator[str]:
        if final.text:
            if not self._language and self._options and self._options.language is None:
                # How probable it is nobody says once the utterance is decoded.
                yield line(uid=self._uid, language=final.language, language_prob=None)
                self._language = True
            self._completed.append(_segment(final, completed=True))
        if self._completed and (final.text or self._spoken):
            yield self._segments()
        self._spoken = False

    def _segments(self, *spoken: dict[str, Any]) -> str:
        return line(uid=self._uid, segments=[*self._completed, *spoken])


def _segment(said: Partial | Final, *, completed: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"start": f"{said.start:.3f}", "end": f"{said.end:.3f}"}
    about |= {"text": f" {said.text}", "completed": completed}
    if isinstance(said, Final) and said.words is not None:
        about["words"] = [
            {
                "word": word.text,
                "start": f"{word.start:.3f}",
                "end": f"{word.end:.3f}",
                "probability": word.probability,
            }
            for word in said.words
        ]
    return about
