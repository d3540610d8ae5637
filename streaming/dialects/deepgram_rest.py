"""Deepgram's API for recordings: POST /v1/listen, options in the URL, the file as the body, JSON back. Pure."""

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from streaming.dialects.deepgram import ENCODINGS
from streaming.dialects.dialect import Query
from streaming.dialects.figures import bare, confidence
from streaming.dialects.options import NO_EFFECT, from_query, hot_words, language_of
from streaming.dialects.rest import RestError
from streaming.protocol import Final, ProtocolError, Start, Word

JSON = "application/json"


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a recording."""

    language: Annotated[str, Meta(description="a code such as en; multi detects it")] = "en"
    detect_language: (
        Annotated[list[str], Meta(description="true detects it; codes choose from those")] | None
    ) = None
    keyterm: Annotated[list[str], Meta(description="words to listen for")] | None = None
    keywords: (
        Annotated[list[str], Meta(description="words to listen for; the boost is left out")] | None
    ) = None
    encoding: (
        Annotated[
            Literal["linear16", "linear32", "mulaw", "alaw"],
            Meta(description="of a body without a header"),
        ]
        | None
    ) = None
    sample_rate: Annotated[int, Meta(ge=4_000, le=384_000, description="of such a body")] = 16_000
    channels: Annotated[int, Meta(ge=1, le=16, description="of such a body; mixed down")] = 1
    utterances: Annotated[bool, Meta(description="whether the answer has them beside the text")] = (
        False
    )
    model: Annotated[str, NO_EFFECT] = ""
    version: Annotated[str, NO_EFFECT] = ""
    smart_format: Annotated[bool, NO_EFFECT] = False
    punctuate: Annotated[bool, NO_EFFECT] = False
    numerals: Annotated[bool, NO_EFFECT] = False
    paragraphs: Annotated[bool, NO_EFFECT] = False
    filler_words: Annotated[bool, NO_EFFECT] = False
    measurements: Annotated[bool, NO_EFFECT] = False
    dictation: Annotated[bool, NO_EFFECT] = False
    mip_opt_out: Annotated[bool, NO_EFFECT] = False
    tag: Annotated[list[str], NO_EFFECT] | None = None
    extra: Annotated[list[str], NO_EFFECT] | None = None
    utt_split: Annotated[float, NO_EFFECT] = 0.8
    token: Annotated[str | None, Meta(description="a token")] = None


class Wish(Struct, frozen=True, kw_only=True):
    """What a request asks for. raw: the body has no header; it is of the format that `start` names."""

    start: Start
    raw: bool
    utterances: bool
    detects: bool


def wish(query: Query) -> Wish:
    """What the URL asks for. Raises RestError."""
    try:
        options = from_query(Options, query)
    except ProtocolError as error:
        raise RestError(HTTPStatus.BAD_REQUEST, str(error)) from None
    detects = [one for one in options.detect_language or () if one != "false"]
    language: str | list[str] | None = language_of(options.language)
    if detects:
        language = [one for one in detects if one != "true"] or None
    keywords = [word.partition(":")[0] for word in options.keywords or ()]
    start = Start(
        encoding=ENCODINGS[options.encoding or "linear16"],
        rate=options.sample_rate,
        channels=options.channels,
        language=language,
        hot_words=hot_words(options.keyterm, keywords),
        partials=False,
        words=True,
    )
    return Wish(
        start=start,
        raw=options.encoding is not None,
        utterances=options.utterances,
        detects=bool(detects),
    )


def check_body(content_type: str) -> None:
    """Raises RestError for a body that names a file elsewhere: captiond fetches nothing."""
    if content_type.partition(";")[0].strip().lower() == "application/json":
        text = "send the recording itself: this captiond fetches no URL"
        raise RestError(HTTPStatus.BAD_REQUEST, text)


def error_body(error: RestError, request: str) -> bytes:
    """The answer that tells of it. request: its id."""
    return msgspec.json.encode(
        {
            "err_code": error.code or error.status.phrase,
            "err_msg": str(error),
            "request_id": request,
        }
    )


class Account(Struct, frozen=True, kw_only=True):
    """What is known of a request beside its text. model: the daemon's; sha256: of the file, in hex."""

    request: str
    model: str
    sha256: str
    created: datetime
    duration: float
    channels: int


def transcript(wish: Wish, finals: Sequence[Final], account: Account) -> bytes:
    """The answer."""
    spoken = [final for final in finals if final.text]
    alternative = {
        "transcript": " ".join(final.text for final in spoken),
        "confidence": round(sum(map(confidence, spoken)) / max(len(spoken), 1), 4),
        "words": [_word(word) for final in spoken for word in final.words or ()],
    }
    channel: dict[str, Any] = {"alternatives": [alternative]}
    if wish.detects and spoken:
        channel |= {"detected_language": spoken[0].language, "language_confidence": 1.0}
    results: dict[str, Any] = {"channels": [channel]}
    if wish.utterances:
        results["utterances"] = [
            _utterance(final, f"{account.request}-{number}") for number, final in enumerate(spoken)
        ]
    return msgspec.json.encode({"metadata": _metadata(account), "results": results})


def _metadata(account: Account) -> dict[str, Any]:
    return {
        "transaction_key": "deprecated",
        "request_id": account.request,
        "sha256": account.sha256,
        "created": account.created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "duration": round(account.duration, 4),
        "channels": account.channels,
        "models": [account.model],
        "model_info": {
            account.model: {"name": account.model, "version": "captiond", "arch": "whisper"}
        },
    }


def _utterance(final: Final, name: str) -> dict[str, Any]:
    words = final.words or []
    return {
        "start": final.start,
        "end": final.end,
        "confidence": confidence(final),
        "channel": 0,
        "transcript": final.text,
        "words": [_word(word) for word in words],
        "id": name,
    }


def _word(word: Word) -> dict[str, Any]:
    return {
        "word": bare(word),
        "start": word.start,
        "end": word.end,
        "confidence": word.probability,
        "punctuated_word": word.text,
    }
