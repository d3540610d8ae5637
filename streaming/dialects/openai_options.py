"""The options of OpenAI's Realtime transcription, in the form of today and in that of its beta."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from streaming.dialects.options import NO_EFFECT

LOGPROBS = "item.input_audio_transcription.logprobs"
FORMATS = {
    "pcm16": "audio/pcm",
    "g711_ulaw": "audio/pcmu",
    "g711_alaw": "audio/pcma",
}  # of the beta
# These stream words before the audio is committed, and take none of them back.
LIVE_MODELS = ("gpt-realtime-whisper", "gpt-live-transcribe")

Include = Annotated[
    list[Literal["item.input_audio_transcription.logprobs"]] | None,
    Meta(description="log-probabilities, one for each word"),
]


class Transcription(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Of the audio's words."""

    model: Annotated[
        str | None,
        Meta(
            description="the daemon's model is used, whatever is named; "
            f"with {' and '.join(LIVE_MODELS)} deltas come while somebody speaks"
        ),
    ] = None
    language: Annotated[str | None, Meta(description="`language` of `start`; null detects it")] = (
        None
    )
    languages: Annotated[
        list[str] | None, Meta(description="several, of which the language is detected")
    ] = None
    prompt: Annotated[str | None, Meta(description="`prompt` of `start`")] = None
    keywords: Annotated[list[str] | None, Meta(description="`hot_words` of `start`")] = None
    delay: Annotated[Literal["minimal", "low", "medium", "high", "xhigh"] | None, NO_EFFECT] = None


class TurnDetection(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What ends an item. Null: only `commit` does."""

    type: Annotated[
        Literal["server_vad", "semantic_vad"], Meta(description="both are the daemon's detector")
    ] = "server_vad"
    silence_duration_ms: Annotated[
        int | None,
        Meta(description="`endpoint_silence_ms` of `start`, within its bounds; null: the daemon's"),
    ] = None
    threshold: Annotated[float | None, NO_EFFECT] = None
    prefix_padding_ms: Annotated[int | None, NO_EFFECT] = None
    idle_timeout_ms: Annotated[int | None, NO_EFFECT] = None
    eagerness: Annotated[Literal["low", "medium", "high", "auto"] | None, NO_EFFECT] = None
    create_response: Annotated[bool | None, NO_EFFECT] = None
    interrupt_response: Annotated[bool | None, NO_EFFECT] = None


class NoiseReduction(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """captiond reduces no noise."""

    type: Annotated[Literal["near_field", "far_field"] | None, NO_EFFECT] = None
    strength: Annotated[float | None, NO_EFFECT] = None


class Format(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Of the audio."""

    type: Annotated[
        Literal["audio/pcm", "audio/pcmu", "audio/pcma"],
        Meta(description="16-bit, or G.711 at 8 kHz"),
    ] = "audio/pcm"
    rate: Annotated[
        Literal[24000, 8000] | None, Meta(description="24000 of audio/pcm, else 8000")
    ] = None


class AudioInput(Struct, forbid_unknown_fields=True):
    """How audio comes, and what is made of it."""

    format: Format | UnsetType = UNSET
    transcription: Transcription | UnsetType | None = UNSET
    turn_detection: (
        Annotated[TurnDetection | None, Meta(description="null: only `commit` ends an item")]
        | UnsetType
    ) = UNSET
    noise_reduction: NoiseReduction | UnsetType | None = UNSET


class Audio(Struct, forbid_unknown_fields=True):
    """Of the session."""

    input: AudioInput | UnsetType = UNSET


class Session(Struct, forbid_unknown_fields=True):
    """`session` of `session.update`. What is left out stays as it is."""

    type: Annotated[
        Literal["transcription"], Meta(description="captiond transcribes, and answers nobody")
    ] = "transcription"
    audio: Audio | UnsetType = UNSET
    include: Include | UnsetType = UNSET


class BetaSession(Struct, forbid_unknown_fields=True):
    """`session` of `transcription_session.update`."""

    input_audio_format: (
        Annotated[
            Literal["pcm16", "g711_ulaw", "g711_alaw"],
            Meta(description="24 kHz, or G.711 at 8 kHz"),
        ]
        | UnsetType
    ) = UNSET
    input_audio_transcription: Transcription | UnsetType | None = UNSET
    turn_detection: TurnDetection | UnsetType | None = UNSET
    input_audio_noise_reduction: NoiseReduction | UnsetType | None = UNSET
    include: Include | UnsetType = UNSET

    def modern(self) -> AudioInput:
        """The same as it is said today."""
        form = self.input_audio_format
        return AudioInput(
            format=UNSET if form is UNSET else Format(type=FORMATS[form]),  # type: ignore[arg-type]
            transcription=self.input_audio_transcription,
            turn_detection=self.turn_detection,
            noise_reduction=self.input_audio_noise_reduction,
        )


class Settled(Struct):
    """What is in force."""

    format: Format
    transcription: Transcription | None
    turn_detection: TurnDetection | None
    noise_reduction: NoiseReduction | None = None
    include: Any = None

    def updated(self, asked: AudioInput, include: Any) -> "Settled":
        """With what was asked for in place of what there was."""

        def newer(name: str) -> Any:
            value = getattr(asked, name)
            return getattr(self, name) if value is UNSET else value

        return Settled(
            newer("format"),
            newer("transcription"),
            newer("turn_detection"),
            newer("noise_reduction"),
            self.include if include is UNSET else include,
        )

    def shown(self, *, beta: bool) -> dict[str, Any]:
        """As the server tells it."""
        if beta:
            names = {today: then for then, today in FORMATS.items()}
            return {
                "input_audio_format": names[self.format.type],
                "input_audio_transcription": self.transcription,
                "turn_detection": self._turns(),
                "input_audio_noise_reduction": self.noise_reduction,
                "include": self.include,
            }
        pcm = self.format.type == "audio/pcm"
        form = {"type": self.format.type} | ({"rate": 24_000} if pcm else {})
        heard = {
            "format": form,
            "transcription": self.transcription,
            "noise_reduction": self.noise_reduction,
            "turn_detection": self._turns(),
        }
        return {"type": "transcription", "include": self.include, "audio": {"input": heard}}

    def _turns(self) -> dict[str, Any] | None:
        turns = self.turn_detection
        if turns is None:
            return None
        known = {name: getattr(turns, name) for name in turns.__struct_fields__}
        return {name: value for name, value in known.items() if value is not None}
