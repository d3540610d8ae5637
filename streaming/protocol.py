"""The wire: protocol `captiond.v1` as one tagged union of small frozen messages.

Control and events travel as JSON text frames, audio as binary frames; every message names its
`type`. Times are seconds of session time: the position in the audio received so far, never the
wall clock. This file and what it imports need nothing but msgspec, so that a client installs
without numpy or torch.

A client's messages are read strictly, a daemon's tolerantly: the reader ignores unknown fields in
these, so that a newer daemon can add fields without breaking older clients.

    client → start or resume, binary audio, configure, flush, stop
    → client ready, speech, partial, final, configured, flushed, lag, heard, error, closed

`schema()` gives the whole protocol as JSON Schema; `docs/protocol.schema.json` is its copy, written
by `python -m streaming.protocol > docs/protocol.schema.json`.
"""

import json
import sys
from typing import Annotated, Any, Literal, TypeVar, get_args
from typing import Final as Constant

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from streaming.settings import Blocked, Cap, EndpointSilence, MinimumSpeech, Numbers
from streaming.validation_errors import what_is_wrong

SUBPROTOCOL = "captiond.v1"

MESSAGE_CHARACTERS = 500  # of an error: it may quote a client's message, which may be long

SAMPLE_RATE = 16_000  # Hz: the recogniser's rate, and the unit of the audio account

Encoding = Literal["s16le", "f32le", "mulaw", "alaw"]
SAMPLE_BYTES: Constant[dict[Encoding, int]] = {"s16le": 2, "f32le": 4, "mulaw": 1, "alaw": 1}
Task = Literal["transcribe", "translate"]
Stability = Literal["revise", "commit"]
Language = Annotated[str, Meta(max_length=16)]  # a code; the model has the list
Languages = Language | Annotated[list[Language], Meta(min_length=1, max_length=100)] | None
Prompt = Annotated[str, Meta(max_length=1_000)]
HotWords = Annotated[list[Annotated[str, Meta(min_length=1, max_length=50)]], Meta(max_length=50)]
Phrase = Annotated[str, Meta(min_length=1, max_length=100)]
Replacements = Annotated[dict[Phrase, Annotated[str, Meta(max_length=200)]], Meta(max_length=500)]
Blocklist = Annotated[list[Phrase], Meta(max_length=500)]
ErrorCode = Literal[
    "bad_json",  # a text frame that is not JSON
    "bad_message",  # JSON, but no message of this protocol
    "bad_order",  # audio or a command before start; a second start; anything after stop
    "bad_audio",  # NaN, infinity, or a binary frame in another format than announced
    "bad_request",  # a start or configure whose values this daemon cannot serve (a language the model lacks)
    "bad_resume",  # the session to resume is not known (any more), or has moved on
    "busy",  # a connection that came to resume starts a session, and there is no room
    "idle",  # nothing came for too long; all finals have been sent
    "time_limit",  # the session has lasted as long as it may; as with "idle"
    "decode_failed",  # one utterance could not be recognised; its final is empty
    "shutting_down",  # the daemon stops; all finals have been sent
    "internal",  # a fault of the daemon's own
]


class ProtocolError(ValueError):
    """The peer sent something outside the protocol; `code` is what the `error` message says."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code: ErrorCode = code


class _FromClient(Struct, frozen=True, tag_field="type", kw_only=True, forbid_unknown_fields=True):
    """Strict: an unknown field asks for something that this daemon would not do."""


class _FromDaemon(Struct, frozen=True, tag_field="type", kw_only=True):
    """Tolerant: a newer daemon may add fields to captiond.v1, and an older client ignores them."""


class Start(_FromClient, tag="start", frozen=True):
    """Opens the session. Every field has a default: `{"type": "start"}` is 16 kHz mono int16.

    encoding: sample format of every binary frame, little-endian.
    rate: Hz. channels: interleaved, mixed down to mono. channel: the only one to hear, counted from 0.
    language: a code ("en"), several to choose from, or null to detect among all.
    task: "translate" writes English whatever is spoken (multilingual models only).
    temperature: 0 is greedy and deterministic; above 0 samples, reproducibly for a given `seed`.
    partials: whether hypotheses of unfinished utterances are wanted.
    stability: "commit" promises that characters once stable never change, in the final either;
        "revise" leaves a final free to say exactly what Whisper says.
    words: whether finals carry the times of their words.
    prompt: text that Whisper is given as what came before (names, spelling, style).
    hot_words: words and names to listen for; given to Whisper like the prompt, and before it.
    endpoint_silence_ms, minimum_speech_ms, cap_ms: this session's own; null for the daemon's.
    replacements, blocklist, blocked, numbers: rules of the text, this session's own; null for the
        daemon's. What is heard is replaced by what is written, in any case; words to hide are masked or
        dropped, `*` at the end of one stands for any ending; numbers are written as Whisper does, as
        digits or as words.
    resumable: whether the session shall outlive its connection for a while, see `Resume`.
    """

    encoding: Encoding = "s16le"
    rate: Annotated[int, Meta(ge=4_000, le=384_000)] = SAMPLE_RATE
    channels: Annotated[int, Meta(ge=1, le=16)] = 1
    channel: Annotated[int, Meta(ge=0, le=15)] | None = None
    language: Languages = None
    task: Task = "transcribe"
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    partials: bool = True
    stability: Stability = "revise"
    words: bool = False
    prompt: Prompt = ""
    hot_words: HotWords | None = None
    endpoint_silence_ms: EndpointSilence | None = None
    minimum_speech_ms: MinimumSpeech | None = None
    cap_ms: Cap | None = None
    replacements: Replacements | None = None
    blocklist: Blocklist | None = None
    blocked: Blocked | None = None
    numbers: Numbers | None = None
    resumable: bool = False


class Resume(_FromClient, tag="resume", frozen=True):
    """In place of `start`: goes on with a session whose connection was lost.

    session, key: from its `ready`. finals: how many of its finals have come. heard: the first byte of
    its audio that can still be sent again; what a `heard` or `ready` message told, or less.

    The answer is `ready`, then everything after the last of those finals; `speech`, `flushed` and
    `decode_failed` messages may come a second time. The client sends its audio again from the byte on
    that `ready` names.
    """

    session: Annotated[str, Meta(max_length=40)]
    key: Annotated[str, Meta(max_length=100)]
    finals: Annotated[int, Meta(ge=0)]
    heard: Annotated[int, Meta(ge=0)]


class Configure(_FromClient, tag="configure", frozen=True):
    """Changes what `start` asked for, from the next utterance on. The answer is `Configured`.

    The fields are as of `start`; what is left out stays as it is.
    """

    language: Languages | UnsetType = UNSET
    task: Task | UnsetType = UNSET
    prompt: Prompt | UnsetType = UNSET
    hot_words: HotWords | UnsetType | None = UNSET


class Flush(_FromClient, tag="flush", frozen=True):
    """End the current utterance now; the stream goes on. The answer is `Flushed`."""


class Stop(_FromClient, tag="stop", frozen=True):
    """End of audio: everything pending is finalised, then `closed` is sent."""


class Limits(Struct, frozen=True, kw_only=True):
    """What this daemon takes: `frame_bytes` is the largest frame, `utterance_seconds` the longest
    utterance, `buffered_seconds` how much audio may wait before the daemon stops reading,
    `resume_seconds` how long a session outlives its connection, 0 if it does not.
    """

    frame_bytes: int
    utterance_seconds: float
    buffered_seconds: float
    resume_seconds: float = 0.0


class Ready(_FromDaemon, tag="ready", frozen=True):
    """The answer to `start` and `resume`: audio may flow, from byte `heard` of it on.

    drafter: null where decoding is plain greedy. key: what `resume` must bring; null: it is no use.
    """

    session: str
    model: str
    drafter: str | None
    limits: Limits
    key: str | None = None
    heard: int = 0


class Speech(_FromDaemon, tag="speech", frozen=True):
    """Speech began (`event` "start", `at` the first sample) or ended ("end") in `utterance`."""

    event: Literal["start", "end"]
    utterance: int
    at: float


class Partial(_FromDaemon, tag="partial", frozen=True):
    """A hypothesis of an unfinished utterance; it replaces the one before.

    The first `stable` characters of `text` never change in later partials.
    """

    utterance: int
    start: float
    end: float
    text: str
    stable: int


class DecodeFigures(Struct, frozen=True, kw_only=True):
    """How the final was decoded: target passes after the first, draft tokens proposed, accepted and
    reused, milliseconds from the end of the utterance to its text (waiting included).
    """

    rounds: int
    proposed: int
    accepted: int
    reused: int
    ms: float


class Word(Struct, frozen=True, kw_only=True):
    """One word of a final as it is written there, and when it was said: session time in seconds.

    `probability` is the model's own, the mean of its tokens'.
    """

    text: str
    start: float
    end: float
    probability: float


class Final(_FromDaemon, tag="final", frozen=True):
    """The last word on [start, end). `text` may be empty: the sound was no speech.

    language_probability: among the languages that it was chosen from; null where it was given.
    mean_logprob: mean natural log-probability of the tokens, end of transcript included.
    no_speech: the model's probability that the utterance holds no speech.
    temperature: at which the text was decoded; above the session's where the first attempts failed.
    compression_ratio: bytes of the text to deflated bytes; high for a text that repeats itself.
    words: the times of its words, where `start` asked for them.
    voiced: seconds of [start, end) that were taken for speech; covered: those of them that the text
        accounts for.
    raw: the text before the rules of the session were applied; null where it has none.
    """

    utterance: int
    start: float
    end: float
    text: str
    language: str
    no_speech: float
    mean_logprob: float
    decode: DecodeFigures
    temperature: float = 0.0
    compression_ratio: float = 0.0
    words: list[Word] | None = None
    language_probability: float | None = None
    voiced: float = 0.0
    covered: float = 0.0
    raw: str | None = None


class Configured(_FromDaemon, tag="configured", frozen=True):
    """The answer to `configure`: it holds for utterances whose speech begins at `at` or later."""

    at: float


class Flushed(_FromDaemon, tag="flushed", frozen=True):
    """The answer to `flush`: the finals of all that was spoken before `at` have come."""

    at: float


class Lag(_FromDaemon, tag="lag", frozen=True):
    """The service is `seconds` behind; `shedding` says what it leaves out to catch up."""

    seconds: float
    shedding: Literal["nothing", "partials"]


class Heard(_FromDaemon, tag="heard", frozen=True):
    """The first `bytes` of the audio are safe; only for sessions that can be resumed."""

    bytes: int


class Error(_FromDaemon, tag="error", frozen=True):
    """Something went wrong. `fatal`: the session is over and the socket will close.

    A message longer than MESSAGE_CHARACTERS is cut.
    """

    code: ErrorCode
    message: str
    fatal: bool

    def __post_init__(self) -> None:
        if len(self.message) > MESSAGE_CHARACTERS:
            cut = self.message[: MESSAGE_CHARACTERS - 1] + "…"
            msgspec.structs.force_setattr(self, "message", cut)


class Closed(_FromDaemon, tag="closed", frozen=True):
    """The audio account, in samples at 16 kHz: received = speech + silence + refused."""

    received: int
    speech: int
    silence: int
    refused: int
    finals: int


M = TypeVar("M")

ClientMessage = Start | Resume | Configure | Flush | Stop
ServerMessage = (
    Ready | Speech | Partial | Final | Configured | Flushed | Lag | Heard | Error | Closed
)

_client_decoder = msgspec.json.Decoder(ClientMessage)
_server_decoder = msgspec.json.Decoder(ServerMessage)
_encoder = msgspec.json.Encoder()


def encode(message: ClientMessage | ServerMessage) -> str:
    """One JSON text frame."""
    return _encoder.encode(message).decode()


def decode_client(text: str) -> ClientMessage:
    """Parse what a client sent. Raises ProtocolError, whose message names the offending field."""
    return _decode(_client_decoder, text)


def decode_server(text: str) -> ServerMessage:
    """Parse what a daemon sent. Raises ProtocolError."""
    return _decode(_server_decoder, text)


def _decode(decoder: msgspec.json.Decoder[M], text: str) -> M:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise ProtocolError("bad_message", what_is_wrong(get_args(decoder.type), text)) from None
    except msgspec.DecodeError as error:
        raise ProtocolError("bad_json", f"text frames carry JSON: {error}") from None
    except UnicodeEncodeError:
        raise ProtocolError("bad_json", "text frames carry JSON in UTF-8") from None
    except RecursionError:
        raise ProtocolError("bad_json", "text frames carry JSON, not so deeply nested") from None


def schema() -> dict[str, Any]:
    """JSON Schema of both directions, under the keys `client` and `server`."""
    (client, server), definitions = msgspec.json.schema_components(
        [ClientMessage, ServerMessage], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SUBPROTOCOL,
        "properties": {"client": client, "server": server},
        "$defs": definitions,
    }


if __name__ == "__main__":
    json.dump(schema(), sys.stdout, indent=2)
    sys.stdout.write("\n")
