"""Which protocols there are, and where each is spoken."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from streaming.dialects import assemblyai, deepgram, deepgram_rest, openai_rest, vosk, whisperlive
from streaming.dialects.assemblyai import AssemblyAi
from streaming.dialects.deepgram import Deepgram
from streaming.dialects.dialect import Dialect, Opening
from streaming.dialects.native import Native
from streaming.dialects.openai_options import BetaSession, Session
from streaming.dialects.openai_realtime import OpenAiRealtime
from streaming.dialects.rest import RestError
from streaming.dialects.vosk import Vosk
from streaming.dialects.whisperlive import WhisperLive
from streaming.protocol import SUBPROTOCOL


@dataclass(frozen=True, slots=True)
class Offer:
    """A protocol. title: whose it is. paths: on the daemon's port. port: key of the configuration that
    names a port of its own, if any. subprotocols: one of these must be offered, where any is.
    refusal: the body of an HTTP answer in place of the websocket, in JSON, where it has a form of its own.
    patient: whether a client for which there is no room is let in, to be told so in the protocol's own words.
    options: by what brings them. example: one line of a client's; {url}, {http}, {host} and {port} are the
    daemon's.
    """

    title: str
    dialect: Callable[[Opening], Dialect]
    paths: tuple[str, ...]
    example: str
    subprotocols: tuple[str, ...] = ()
    port: str = ""
    patient: bool = False
    options: tuple[tuple[str, type[Struct]], ...] = ()
    refusal: Callable[[RestError], bytes] | None = None


NATIVE = Offer(
    title="captiond",
    dialect=Native,
    paths=("/", "/v1"),
    subprotocols=(SUBPROTOCOL,),
    example="captiond mic --url {url}",
)
OPENAI_REALTIME = Offer(
    title="OpenAI Realtime",
    dialect=OpenAiRealtime,
    paths=("/v1/realtime",),
    subprotocols=("realtime",),
    example='OpenAI(base_url="{http}/v1").realtime.connect(extra_query={{"intent": "transcription"}})',
    options=(("session.update", Session), ("transcription_session.update", BetaSession)),
    refusal=openai_rest.error_body,
)
DEEPGRAM = Offer(
    title="Deepgram",
    dialect=Deepgram,
    paths=("/v1/listen",),
    subprotocols=("token", "bearer"),
    example='DeepgramClient(environment=DeepgramClientEnvironment(production="{url}", …))',
    options=(("the URL", deepgram.Options),),
    refusal=lambda error: deepgram_rest.error_body(error, str(uuid.uuid4())),
)
ASSEMBLYAI = Offer(
    title="AssemblyAI",
    dialect=AssemblyAi,
    paths=("/v3/ws",),
    example='StreamingClient(StreamingClientOptions(api_host="{url}", api_key="a token, or anything"))',
    options=(("the URL", assemblyai.Options),),
)
WHISPERLIVE = Offer(
    title="WhisperLive",
    dialect=WhisperLive,
    paths=("/whisperlive",),
    port="whisperlive_port",
    patient=True,
    example='TranscriptionClient("{host}", {port})',
    options=(("the first message", whisperlive.Options),),
)
VOSK = Offer(
    title="Vosk",
    dialect=Vosk,
    paths=("/vosk",),
    port="vosk_port",
    example="vosk-transcriber --server ws://{host}:{port} --input speech.wav",
    options=(("config", vosk.Options),),
)
OFFERS = (NATIVE, OPENAI_REALTIME, DEEPGRAM, ASSEMBLYAI, WHISPERLIVE, VOSK)
BY_PATH = {path: offer for offer in OFFERS for path in offer.paths}
