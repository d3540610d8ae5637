"""The times that each protocol tells, against where the audio has its sound: to 50 ms.

Bursts of noise stand for words; the recogniser knows where they are within what it is given, as a perfect one would.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from streaming.dialects.dialect import Opening
from streaming.dialects.offers import (
    ASSEMBLYAI,
    DEEPGRAM,
    OPENAI_REALTIME,
    VOSK,
    WHISPERLIVE,
    Offer,
)
from streaming.dialects.whisperlive import END_OF_AUDIO
from streaming.hypothesis import TimedWord
from streaming.protocol import SAMPLE_RATE
from streaming.settings import Settings
from streaming.utterance import Decode
from tests.support.dialects import Conversation, Frame, opening
from tests.support.streams import GoodHypothesis, Samples, g711, s16

TOLERANCE = 0.05  # seconds
SPOKEN = ((1.0, 1.9), (3.5, 5.0), (7.0, 7.6), (9.2, 12.0))
TOTAL = 14.0
BEGINS, ENDS = zip(*SPOKEN, strict=True)
PRE_ROLL, POST_ROLL = Settings().pre_roll_ms / 1000, Settings().post_roll_ms / 1000
FRAME = 4_800  # bytes

near = pytest.approx


class Listener(Conversation):
    """Its recogniser writes a word for each burst, or what it hears of one."""

    def hypothesis(self, decode: Decode) -> GoodHypothesis:
        first, last = decode.start / SAMPLE_RATE, decode.stop / SAMPLE_RATE
        timed = tuple(
            TimedWord(f"w{number}", max(begin, first) - first, min(end, last) - first, 0.9)
            for number, (begin, end) in enumerate(SPOKEN)
            if begin < last and end > first
        )
        return GoodHypothesis(" ".join(word.text for word in timed), timed=timed)


def audio(rate: int = SAMPLE_RATE) -> Samples:
    times = np.arange(round(TOTAL * rate)) / rate
    loud = np.zeros(len(times), bool)
    for begin, end in SPOKEN:
        loud |= (begin <= times) & (times < end)
    noise = np.random.default_rng(1).uniform(-0.5, 0.5, len(times))
    return np.where(loud, noise, 0).astype(np.float32)


def listen(offer: Offer, *said: Frame, about: Opening | None = None) -> list[dict[str, Any]]:
    client = Listener(offer.dialect(about or opening()))
    client.say(*said)
    return client.sent


def pieces(data: bytes) -> list[bytes]:
    return [data[at : at + FRAME] for at in range(0, len(data), FRAME)]


def is_near(found: list[float], wanted: tuple[float, ...]) -> bool:
    return found == near(list(wanted), abs=TOLERANCE)


@pytest.mark.parametrize(
    ("options", "encode"),
    [
        ({"sample_rate": "16000"}, lambda: s16(audio())),
        ({"sample_rate": "8000", "encoding": "mulaw"}, lambda: g711(audio(8_000), "ULAW")),
        ({"sample_rate": "48000", "channels": "2"}, lambda: s16(np.repeat(audio(48_000), 2))),
    ],
    ids=["16 kHz", "telephone", "48 kHz stereo"],
)
def test_deepgrams(options: dict[str, str], encode: Callable[[], bytes]) -> None:
    data = encode()
    about = opening(vad_events="true", interim_results="true", utterance_end_ms="1000", **options)
    sent = listen(DEEPGRAM, *pieces(data), '{"type": "CloseStream"}', about=about)
    finals = [one for one in sent if one["type"] == "Results" and one["is_final"]]
    words = [word for one in finals for word in one["channel"]["alternatives"][0]["words"]]
    assert is_near([word["start"] for word in words], BEGINS)
    assert is_near([word["end"] for word in words], ENDS)
    last = [one["last_word_end"] for one in sent if one["type"] == "UtteranceEnd"]
    assert is_near(last, ENDS)
    assert all(one["speech_final"] for one in finals)
    reached = [one["start"] + one["duration"] for one in finals]
    assert is_near(reached, tuple(end + POST_ROLL for end in ENDS))
    assert is_near([one["start"] for one in finals], (0.0, *reached[:-1]))  # they tile the audio
    began = [one["timestamp"] for one in sent if one["type"] == "SpeechStarted"]
    assert is_near(began, tuple(begin - PRE_ROLL for begin in BEGINS))
    assert sent[-1]["duration"] == near(TOTAL, abs=TOLERANCE)


def test_deepgrams_where_a_word_is_cut_by_finalize() -> None:
    """The words of what is said before end there, those of what is said after begin there."""
    at = 4.2
    data = s16(audio())
    cut = round(at * SAMPLE_RATE) * 2
    said: list[Frame] = [*pieces(data[:cut]), '{"type": "Finalize"}', *pieces(data[cut:])]
    sent = listen(DEEPGRAM, *said, '{"type": "CloseStream"}', about=opening(sample_rate="16000"))
    finals = [one for one in sent if one["type"] == "Results"]
    (asked,) = (one for one in finals if one["from_finalize"])
    assert asked["start"] + asked["duration"] == near(at, abs=TOLERANCE)
    after = finals[finals.index(asked) + 1]
    assert after["start"] == near(at, abs=TOLERANCE)
    (before,), (rest,) = (one["channel"]["alternatives"][0]["words"] for one in (asked, after))
    assert is_near([before["start"], before["end"]], (3.5, at))
    assert is_near([rest["start"], rest["end"]], (at, 5.0))


@pytest.mark.parametrize("rate", [24_000, 8_000])
def test_openais(rate: int) -> None:
    """Its speech_started has the padding in front that its documents name, which is the pre-roll here."""
    form = {"type": "audio/pcm"} if rate == 24_000 else {"type": "audio/pcmu"}
    heard = {"format": form, "transcription": {"model": "whisper-1", "language": "en"}}
    session = {"type": "transcription", "audio": {"input": heard}}
    data = s16(audio(rate)) if rate == 24_000 else g711(audio(rate), "ULAW")
    appended = [
        json.dumps({"type": "input_audio_buffer.append", "audio": b64encode(piece).decode()})
        for piece in pieces(data)
    ]
    update = json.dumps({"type": "session.update", "session": session})
    sent = listen(OPENAI_REALTIME, update, *appended)
    began = [one["audio_start_ms"] / 1000 for one in sent if "audio_start_ms" in one]
    ended = [one["audio_end_ms"] / 1000 for one in sent if "audio_end_ms" in one]
    assert is_near(began, tuple(begin - PRE_ROLL for begin in BEGINS))
    assert is_near(ended, tuple(end + POST_ROLL for end in ENDS))
    used = [one["usage"]["seconds"] for one in sent if "usage" in one]
    lengths = tuple(end - begin for begin, end in zip(began, ended, strict=True))
    assert is_near(list(accumulate(used)), tuple(accumulate(lengths)))


def test_assemblyais() -> None:
    about = opening(sample_rate="16000")
    sent = listen(ASSEMBLYAI, *pieces(s16(audio())), '{"type": "Terminate"}', about=about)
    turns = [one for one in sent if one["type"] == "Turn" and one["end_of_turn"]]
    words = [word for turn in turns for word in turn["words"]]
    assert is_near([word["start"] / 1000 for word in words], BEGINS)
    assert is_near([word["end"] / 1000 for word in words], ENDS)
    assert sent[-1]["audio_duration_seconds"] == TOTAL


def test_whisperlives() -> None:
    about = {"uid": "u", "language": "en", "word_timestamps": True, "audio_format": "int16"}
    sent = listen(WHISPERLIVE, json.dumps(about), *pieces(s16(audio())), END_OF_AUDIO)
    segments = [one for one in sent if "segments" in one][-1]["segments"]
    words = [word for segment in segments for word in segment["words"]]
    assert is_near([float(word["start"]) for word in words], BEGINS)
    assert is_near([float(word["end"]) for word in words], ENDS)
    starts = [float(segment["start"]) for segment in segments]
    assert is_near(starts, tuple(begin - PRE_ROLL for begin in BEGINS))
    stops = [float(segment["end"]) for segment in segments]
    assert is_near(stops, tuple(end + POST_ROLL for end in ENDS))


def test_vosks() -> None:
    """They run from the beginning of the connection."""
    config = '{"config": {"sample_rate": 16000}}'
    sent = listen(VOSK, config, *pieces(s16(audio())), '{"eof" : 1}')
    words = [word for one in sent for word in one.get("result", ())]
    assert is_near([word["start"] for word in words], BEGINS)
    assert is_near([word["end"] for word in words], ENDS)
