"""OpenAI's API for files: a form in, a transcript in one of five forms or a stream of events out. Pure.

POST /v1/audio/transcriptions, POST /v1/audio/translations, GET /v1/models
"""

import math
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from streaming.dialects.language_names import name
from streaming.dialects.options import NO_EFFECT, from_query
from streaming.dialects.rest import RestError
from streaming.protocol import Final, ProtocolError, Start, Task
from streaming.subtitles import Subtitles

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
EVENTS = "text/event-stream"

# OpenAI's own models: clients that name one get the daemon's.
ALIASES = ("whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe")
LONGEST_PROMPT = 1_000  # characters, as `start` takes them; of more the end counts

Form = Literal["json", "text", "srt", "verbose_json", "vtt"]


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of the form beside `file`."""

    model: Annotated[
        str, Meta(description=f"the daemon's own, or {', '.join(ALIASES)}, which stand for it")
    ]
    language: Annotated[str, Meta(description="a code such as en; detected if absent")] | None = (
        None
    )
    prompt: Annotated[str, Meta(description="text taken for what came before; its end counts")] = ""
    response_format: Annotated[Form, Meta(description="of the answer")] = "json"
    temperature: Annotated[
        float, Meta(ge=0.0, le=1.0, description="0 is greedy, with Whisper's fallback")
    ] = 0.0
    timestamp_granularities: (
        Annotated[
            list[Literal["word", "segment"]],
            Meta(description="of verbose_json; segment if absent"),
        ]
        | None
    ) = None
    stream: Annotated[
        bool, Meta(description="whether the text comes as events, an utterance at a time")
    ] = False
    include: Annotated[list[str], NO_EFFECT] | None = None
    chunking_strategy: Annotated[str, NO_EFFECT] | None = None


class Wish(Struct, frozen=True, kw_only=True):
    """What a request asks for. words, segments: whether verbose_json has them."""

    start: Start
    form: Form
    stream: bool
    words: bool
    segments: bool


def wish(fields: Iterable[tuple[str, str]], task: Task, models: Sequence[str]) -> Wish:
    """What the form asks for. models: the names that the daemon's model has. Raises RestError."""
    given = [(field.partition("[")[0], value) for field, value in fields]
    try:
        options = from_query(Options, given)
    except ProtocolError as error:
        raise RestError(HTTPStatus.BAD_REQUEST, str(error)) from None
    if options.model not in models:
        raise unknown_model(options.model)
    wanted = options.timestamp_granularities
    if wanted is not None and options.response_format != "verbose_json":
        text = "timestamp_granularities is for the response_format verbose_json"
        raise RestError(HTTPStatus.BAD_REQUEST, text, param="timestamp_granularities")
    words = "word" in (wanted or ())
    start = Start(
        language=options.language or None,
        task=task,
        prompt=options.prompt[-LONGEST_PROMPT:],
        temperature=options.temperature,
        partials=False,
        words=words,
    )
    return Wish(
        start=start,
        form=options.response_format,
        stream=options.stream,
        words=words,
        segments=not wanted or "segment" in wanted,
    )


def unknown_model(model: str) -> RestError:
    """For a model that the daemon does not serve."""
    return RestError(
        HTTPStatus.NOT_FOUND,
        f"The model {model!r} does not exist",
        code="model_not_found",
        param="model",
    )


def error_body(error: RestError) -> bytes:
    """The answer that tells of it."""
    kind = (
        "invalid_request_error"
        if error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        else "server_error"
    )
    about = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": about})


def transcript(wish: Wish, finals: Sequence[Final], duration: float) -> tuple[str, bytes]:
    """Content type and body of the answer."""
    text = joined(finals)
    match wish.form:
        case "text":
            return TEXT, f"{text}\n".encode()
        case "srt" | "vtt":
            subtitles = Subtitles(vtt=wish.form == "vtt")
            cues = "".join(map(subtitles.render, finals))
            return TEXT, (subtitles.header + cues).encode()
        case "json":
            return JSON, msgspec.json.encode({"text": text, "usage": _usage(duration)})
        case "verbose_json":
            return JSON, msgspec.json.encode(_verbose(wish, finals, text, duration))


def joined(finals: Iterable[Final]) -> str:
    """Their texts as one."""
    return " ".join(final.text for final in finals if final.text)


class Events:
    """The events of one streamed answer: a delta for each final that says something, and the whole text."""

    def __init__(self) -> None:
        self._finals: list[Final] = []

    def delta(self, final: Final) -> bytes:
        """The event for `final`. All deltas together are the whole text."""
        if not final.text:
            return b""
        glue = " " if self._finals else ""
        self._finals.append(final)
        return _event({"type": "transcript.text.delta", "delta": glue + final.text})

    def done(self, duration: float) -> bytes:
        """The last event."""
        whole = {"type": "transcript.text.done", "text": joined(self._finals)}
        return _event({**whole, "usage": _usage(duration)})

    @staticmethod
    def error(error: RestError) -> bytes:
        """In place of the last event: the answer has begun, so that no status can tell."""
        return b"event: error\ndata: " + error_body(error) + b"\n\n"


def models(names: Sequence[str], created: int) -> bytes:
    """The answer to GET /v1/models. created: Unix seconds."""
    return msgspec.json.encode({"object": "list", "data": [_model(one, created) for one in names]})


def model(name: str, created: int) -> bytes:
    """The answer to GET /v1/models/NAME."""
    return msgspec.json.encode(_model(name, created))


def _model(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "captiond"}


def _event(about: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(about) + b"\n\n"


def _usage(duration: float) -> dict[str, Any]:
    return {"type": "duration", "seconds": math.ceil(duration)}


def _verbose(wish: Wish, finals: Sequence[Final], text: str, duration: float) -> dict[str, Any]:
    spoken = [final for final in finals if final.text]
    language = wish.start.language or next((final.language for final in spoken), "")
    if wish.start.task == "translate":
        language = "en"
    about: dict[str, Any] = {
        "task": "transcribe" if wish.start.task == "transcribe" else "translate",
        "language": name(str(language)),
        "duration": round(duration, 3),
        "text": text,
        "usage": _usage(duration),
    }
    if wish.segments:
        about["segments"] = [_segment(number, final) for number, final in enumerate(spoken)]
    if wish.words:
        words = [word for final in spoken for word in final.words or ()]
        about["words"] = [{"word": w.text, "start": w.start, "end": w.end} for w in words]
    return about


def _segment(number: int, final: Final) -> dict[str, Any]:
    """An utterance, as Whisper's segments are told. Its tokens are not known here."""
    return {
        "id": number,
        "seek": round(final.start * 100),
        "start": final.start,
        "end": final.end,
        "text": f" {final.text}",
        "tokens": [],
        "temperature": final.temperature,
        "avg_logprob": final.mean_logprob,
        "compression_ratio": final.compression_ratio,
        "no_speech_prob": final.no_speech,
    }
