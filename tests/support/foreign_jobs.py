"""What the clients of other projects are given to transcribe, and what captiond's own is told for the same bytes."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import soundfile
import soxr

from streaming.protocol import SAMPLE_RATE
from tests.support.streams import Samples, g711, s16

Event = dict[str, Any]
END = " &"  # of every text that the script of a recogniser gives: texts may come joined


@dataclass(frozen=True)
class Job:
    """Audio as it is sent, and what is said of it: to the client, and to captiond's own.

    file: what the client sends in place of the raw audio, if anything.
    """

    audio: bytes
    options: dict[str, Any]
    start: dict[str, Any]
    file: bytes = b""


def resampled(samples: Samples, rate: int) -> Samples:
    return np.asarray(soxr.resample(samples, SAMPLE_RATE, rate).clip(-1, 1), np.float32)


def parts(text: str) -> list[str]:
    """The texts of utterances that were joined."""
    return text.removesuffix(END).split(f"{END} ")


def openai_job(samples: Samples, language: str, kind: str) -> Job:
    """Telephone is μ-law, all else 24 kHz."""
    heard: dict[str, Any] = {"transcription": {"model": "whisper-1", "language": language}}
    start: dict[str, Any] = {"language": language, "encoding": "s16le", "rate": 24_000}
    if kind == "telephone":
        heard["format"] = {"type": "audio/pcmu"}
        start |= {"encoding": "mulaw", "rate": 8_000}
        audio = g711(resampled(samples, 8_000), "ULAW")
    else:
        audio = s16(resampled(samples, 24_000))
    return Job(audio, {"type": "transcription", "audio": {"input": heard}}, start)


def openai_texts(events: list[Event]) -> list[str]:
    completed = [event for event in events if event["type"].endswith("transcription.completed")]
    return [event["transcript"] for event in completed if event["transcript"]]


def deepgram_job(samples: Samples, language: str, kind: str) -> Job:
    """Telephone is μ-law, wide is 48 kHz stereo."""
    options: dict[str, Any] = {"model": "nova-3", "language": language, "interim_results": True}
    options |= {"utterance_end_ms": 1000, "vad_events": True, "smart_format": True}
    start: dict[str, Any] = {"language": language, "words": True}
    match kind:
        case "telephone":
            audio = g711(resampled(samples, 8_000), "ULAW")
            options |= {"encoding": "mulaw", "sample_rate": 8_000}
            start |= {"encoding": "mulaw", "rate": 8_000}
        case "wide":
            audio = s16(np.repeat(resampled(samples, 48_000), 2))
            options |= {"encoding": "linear16", "sample_rate": 48_000, "channels": 2}
            start |= {"rate": 48_000, "channels": 2}
        case _:
            audio = s16(samples)
            options |= {"encoding": "linear16", "sample_rate": 16_000}
    return Job(audio, options, start)


def deepgram_texts(events: list[Event]) -> list[str]:
    finals = [event for event in events if event["type"] == "Results" and event["is_final"]]
    texts = [event["channel"]["alternatives"][0]["transcript"] for event in finals]
    return [text for text in texts if text]


def assemblyai_job(samples: Samples, language: str, kind: str) -> Job:
    """Telephone is μ-law, wide is 48 kHz."""
    options: dict[str, Any] = {"sample_rate": 16_000, "language_code": language}
    start: dict[str, Any] = {"language": language, "words": True}
    match kind:
        case "telephone":
            audio = g711(resampled(samples, 8_000), "ULAW")
            options |= {"encoding": "pcm_mulaw", "sample_rate": 8_000}
            start |= {"encoding": "mulaw", "rate": 8_000}
        case "wide":
            audio = s16(resampled(samples, 48_000))
            options |= {"sample_rate": 48_000}
            start |= {"rate": 48_000}
        case _:
            audio = s16(samples)
    return Job(audio, options, start)


def assemblyai_texts(events: list[Event]) -> list[str]:
    turns = [event for event in events if event["type"] == "Turn" and event["end_of_turn"]]
    return [event["transcript"] for event in turns if event["transcript"]]


def whisperlive_job(samples: Samples, language: str, _kind: str) -> Job:
    """Its client makes 16 kHz of everything."""
    return Job(s16(samples), {"lang": language}, {"language": language})


def whisperlive_texts(events: list[Event]) -> list[str]:
    return [segment["text"].strip() for event in events for segment in event["segments"]]


def vosk_job(samples: Samples, _language: str, _kind: str) -> Job:
    """Its client makes 16 kHz of everything, and says no language."""
    return Job(s16(samples), {}, {"words": True})


def vosk_texts(events: list[Event]) -> list[str]:
    """Its last answer may be of several utterances."""
    return parts(
        " ".join(one["text"] for event in events for one in event["result"] if one["text"])
    )


def wyoming_job(samples: Samples, language: str, kind: str) -> Job:
    """Wide is 48 kHz stereo; there is no μ-law, telephone is 8 kHz."""
    rate, channels = {"telephone": (8_000, 1), "wide": (48_000, 2)}.get(kind, (SAMPLE_RATE, 1))
    sound = s16(np.repeat(resampled(samples, rate), channels))
    form = {"rate": rate, "channels": channels}
    return Job(sound, {"language": language, **form}, {"language": language, **form})


def file_job(samples: Samples, language: str, kind: str) -> Job:
    """A WAV file: telephone is μ-law, wide is 48 kHz stereo."""
    rate, channels = {"telephone": (8_000, 1), "wide": (48_000, 2)}.get(kind, (SAMPLE_RATE, 1))
    sound = np.repeat(resampled(samples, rate)[:, None], channels, axis=1)
    file = io.BytesIO()
    subtype = "ULAW" if kind == "telephone" else "PCM_16"
    soundfile.write(file, sound, rate, subtype=subtype, format="WAV")
    file.seek(0)
    heard, _ = soundfile.read(file, dtype="int16")
    start = {"language": language, "rate": rate, "channels": channels}
    return Job(heard.tobytes(), {"language": language}, start, file.getvalue())


def file_texts(events: list[Event]) -> list[str]:
    return [text for event in events for text in parts(event["text"])]
