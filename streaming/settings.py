"""The settings of the streaming room, each bound stated once. Needs msgspec alone.

The protocol (`start`) and the daemon's configuration take their bounds from the types here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args, get_type_hints

from msgspec import Meta

Detector = Literal["silero", "webrtc"]
Numbers = Literal[
    "as_is", "digits", "words"
]  # as Whisper writes them, mostly as digits; or all alike
Blocked = Literal["mask", "drop"]  # words of a blocklist

VadMode = Annotated[int, Meta(ge=0, le=3)]  # webrtcvad has these four
MinimumSpeech = Annotated[int, Meta(ge=30, le=1_000)]  # ms: from a detector's frame to a short word
# ms: an utterance keeps its post-roll, of at most 200 ms, so less silence cannot end it.
EndpointSilence = Annotated[int, Meta(ge=200, le=10_000)]
Cap = Annotated[int, Meta(ge=10_000, le=30_000)]  # ms: Whisper's window has 30 s
PartialInterval = Annotated[int, Meta(ge=100, le=10_000)]  # ms


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings, in milliseconds but for the detector, its mode, and the rules of the text.

    vad: the detector of speech (streaming/vad.py has the figures).
    vad_mode: webrtcvad's, 0 (most is speech) to 3 (least is).
    minimum_speech_ms: a shorter burst opens no utterance.
    pre_roll_ms: audio kept before the first speech. post_roll_ms: audio kept after the last.
    endpoint_silence_ms: silence that ends an utterance. Less and less is enough for one longer than half
        the cap, from five sixths of it on no more than the post-roll. With 500 more sentences
        are cut at pauses: WER of test-other 13.6 %, with 700 12.5 %, with 900 11.9 %, decoded whole 11.0 %.
    cap_ms: the longest utterance; cut_search_ms: its last stretch, in which the cut is sought.
    partial_interval_ms: new audio from one partial decode to the next.
    replacements, blocklist, blocked, numbers: rules of the text, see streaming/text_rules.py.

    Raises ValueError naming the setting, its value and the accepted range.
    """

    vad: Detector = "silero"
    vad_mode: VadMode = 0
    minimum_speech_ms: MinimumSpeech = 60
    pre_roll_ms: Annotated[int, Meta(ge=300, le=2_000)] = 300
    post_roll_ms: Annotated[int, Meta(ge=30, le=200)] = 200
    endpoint_silence_ms: EndpointSilence = 700
    cap_ms: Cap = 30_000
    cut_search_ms: Annotated[int, Meta(ge=1_000, le=6_000)] = 5_000
    partial_interval_ms: PartialInterval = 500
    replacements: Mapping[str, str] = field(default_factory=dict)
    blocklist: Sequence[str] = ()
    blocked: Blocked = "mask"
    numbers: Numbers = "as_is"

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}: it must lie in {low} … {high}")


def bounds(kind: Any) -> tuple[float, float] | None:
    """Least and greatest value of an annotated number; None for any other type."""
    return next(
        (
            (meta.ge, meta.le)
            for meta in get_args(kind)[1:]
            if isinstance(meta, Meta) and meta.ge is not None and meta.le is not None
        ),
        None,
    )


RANGES = {
    name: limits
    for name, kind in get_type_hints(Settings, include_extras=True).items()
    if (limits := bounds(kind)) is not None
}
