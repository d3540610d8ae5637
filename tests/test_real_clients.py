"""The clients of other projects themselves, unmodified, each in an environment of its own.

The finals of each must equal, text for text, those of captiond's own client for the same bytes. The
recogniser is a script that answers with a digest of what it hears: the texts are equal only if every
sample is.
"""

import asyncio
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr

from daemon.server import Daemon
from model.engine.requests import Request
from streaming.protocol import SAMPLE_RATE, Final, Start, Stop
from tests.support.audio import Recording, needs_audio, recordings
from tests.support.client_venv import python_of
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.streams import Samples, g711, s16
from tests.support.wire import calling, frames, free_port, serving, speech, until

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parent / "support" / "clients"
KEY = "a-key-of-some-length"
Event = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """Audio as it is sent, and what is said of it: to the client, and to captiond's own."""

    audio: bytes
    options: dict[str, Any]
    start: dict[str, Any]


@dataclass(frozen=True)
class Foreign:
    """A client. texts: of its finals, from what it printed. port: key of its own port, if any."""

    name: str
    script: str
    requirements: tuple[str, ...]
    job: Callable[[Samples, str, str], Job]
    texts: Callable[[list[Event]], list[str]]
    alone: tuple[str, ...] = ()
    port: str = ""
    unknown: dict[str, Any] = field(default_factory=dict)  # options that captiond refuses

    def __str__(self) -> str:
        return self.name


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
    texts = [one["text"] for event in events for one in event["result"] if one["text"]]
    return " ".join(texts).split(" & ")


CLIENTS = [
    Foreign(
        "openai",
        "openai_realtime.py",
        ("openai[realtime]==3.57.0",),
        openai_job,
        openai_texts,
        unknown={"type": "transcription", "audio": {"input": {"tempo": 1}}},
    ),
    Foreign(
        "deepgram",
        "deepgram_live.py",
        ("deepgram-sdk==7.17.0",),
        deepgram_job,
        deepgram_texts,
        unknown={"model": "nova-3", "redact": "pci"},
    ),
    Foreign(
        "assemblyai",
        "assemblyai_v3.py",
        ("assemblyai==1.8.2",),
        assemblyai_job,
        assemblyai_texts,
        unknown={"sample_rate": 16_000, "redact_pii": True},
    ),
    Foreign(
        "whisperlive",
        "whisperlive.py",
        ("websocket-client==1.8.0", "loguru==0.7.3", "numpy"),
        whisperlive_job,
        whisperlive_texts,
        alone=("whisper-live-client==0.6.3",),
        port="whisperlive_port",
    ),
    Foreign("vosk", "vosk_server.py", ("vosk==0.3.45",), vosk_job, vosk_texts, port="vosk_port"),
]
each_client = pytest.mark.parametrize("client", CLIENTS, ids=str)


def resampled(samples: Samples, rate: int) -> Samples:
    return np.asarray(soxr.resample(samples, SAMPLE_RATE, rate).clip(-1, 1), np.float32)


def digest(request: Request) -> str:
    """What the script hears; no text of one is that of another."""
    return f"{len(request.audio)} samples of {zlib.crc32(request.audio.tobytes()):08x} &"


async def started(
    client: Foreign, daemon: Daemon, folder: Path, jobs: list[Job], key: str = KEY
) -> asyncio.subprocess.Process:
    """Its process, at work."""
    requirements = client.requirements, client.alone
    python = await asyncio.to_thread(python_of, client.name, requirements[0], alone=requirements[1])
    work = []
    for number, job in enumerate(jobs):
        path = folder / f"{number}.raw"
        path.write_bytes(job.audio)
        work.append({"audio": str(path), "options": job.options})
    (folder / "jobs").write_text(json.dumps(work))
    port = getattr(daemon.config, client.port) if client.port else daemon.port
    return await asyncio.create_subprocess_exec(
        str(python),
        str(SCRIPTS / client.script),
        str(port),
        key,
        str(folder / "jobs"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(
    client: Foreign, daemon: Daemon, folder: Path, jobs: list[Job], key: str = KEY
) -> list[list[Event]]:
    """What the client prints, by job."""
    process = await started(client, daemon, folder, jobs, key)
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()[-2000:]
    events = [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]
    return [[event for event in events if event.get("job") == n] for n in range(len(jobs))]


async def own_finals(daemon: Daemon, job: Job) -> list[Final]:
    """Captiond's own, of the same bytes; with the same flush at their end."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with calling(daemon, additional_headers=headers) as client:
        await client.say(Start(**job.start), *frames(job.audio), Stop())
        await client.hear_all()
        return client.all(Final)


def sample() -> Samples:
    return np.frombuffer(speech(), "<i2").astype(np.float32) / np.float32(32_768)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Of a daemon with a token and all ports. WhisperLive's client has no way to send a key."""
    path = tmp_path / "tokens"
    path.write_text(f"alice {KEY}\n")
    return {"tokens_file": str(path), "whisperlive_port": free_port(), "vosk_port": free_port()}


def settings_for(client: Foreign, settings: dict[str, Any]) -> dict[str, Any]:
    return settings | ({"tokens_file": ""} if client.name == "whisperlive" else {})


def twenty() -> Iterator[tuple[Samples, str, str]]:
    """English, German, the first two of each as if by telephone, the next as wide as a studio's."""
    for language in ("en", "de"):
        chosen: list[Recording] = []
        for one in recordings(language=language):
            if 3.0 <= one.seconds <= 9.0 and one.path.parent not in {
                two.path.parent for two in chosen
            }:
                chosen.append(one)
        short = [one for one in recordings(language=language) if 3.0 <= one.seconds <= 9.0]
        chosen = [*chosen, *(one for one in short if one not in chosen)][:10]
        for number, one in enumerate(chosen):
            yield one.audio(), language, ("telephone", "wide", "plain")[min(number // 2, 2)]


@each_client
async def test_the_sample_says_the_same(
    client: Foreign, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Half a minute, many utterances, in order; nothing goes wrong on the way."""
    job = client.job(sample(), "en", "plain")
    async with serving(ScriptedEngine(text=digest), **settings_for(client, settings)) as daemon:
        (events,) = await run(client, daemon, tmp_path, [job])
        own = [final.text for final in await own_finals(daemon, job)]
    assert not [event for event in events if "error" in event["type"].lower()]
    assert not [event for event in events if event.get("class") == "ConversationCreatedEvent"]
    assert said(client.texts(events)) == said(own)
    assert len(own) > 5


def said(texts: list[str]) -> list[str]:
    return [text.removesuffix(" &") for text in texts]


@needs_audio
@each_client
async def test_twenty_recordings_say_the_same(
    client: Foreign, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Whatever their language, rate and channels."""
    jobs = [client.job(*one) for one in twenty()]
    assert len(jobs) == 20
    async with serving(ScriptedEngine(text=digest), **settings_for(client, settings)) as daemon:
        said_there = await run(client, daemon, tmp_path, jobs)
        own = [await own_finals(daemon, job) for job in jobs]
    for events, finals in zip(said_there, own, strict=True):
        assert said(client.texts(events)) == said([final.text for final in finals if final.text])


@each_client
async def test_two_at_once_say_their_own(
    client: Foreign, tmp_path: Path, settings: dict[str, Any]
) -> None:
    halves = np.array_split(sample()[: 20 * SAMPLE_RATE], 2)
    jobs = [client.job(half, "en", "plain") for half in halves]
    for number in range(len(jobs)):
        (tmp_path / str(number)).mkdir()
    async with serving(ScriptedEngine(text=digest), **settings_for(client, settings)) as daemon:
        both = await asyncio.gather(
            *(run(client, daemon, tmp_path / str(n), [job]) for n, job in enumerate(jobs))
        )
        own = [[final.text for final in await own_finals(daemon, job)] for job in jobs]
    assert [said(client.texts(events)) for (events,) in both] == [said(texts) for texts in own]


@each_client
async def test_a_sudden_end_costs_nobody_else(
    client: Foreign, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Killed while its words are decoded: its session is gone, its neighbour's finals are whole."""
    engine = ScriptedEngine(text=digest)
    job = client.job(sample(), "en", "plain")
    async with serving(engine, **settings_for(client, settings)) as daemon:
        own = [final.text for final in await own_finals(daemon, job)]
        engine.hold()
        process = await started(client, daemon, tmp_path, [job])
        await until(engine.entered.is_set)
        process.kill()
        await process.communicate()
        engine.release()
        await until(lambda: not daemon.sessions)
        assert [final.text for final in await own_finals(daemon, job)] == own


@pytest.mark.parametrize("client", [one for one in CLIENTS if one.name != "whisperlive"], ids=str)
async def test_a_wrong_key_is_told(
    client: Foreign, tmp_path: Path, settings: dict[str, Any]
) -> None:
    job = client.job(sample()[:SAMPLE_RATE], "en", "plain")
    async with serving(ScriptedEngine(), **settings) as daemon:
        (events,) = await run(client, daemon, tmp_path, [job], key="a-wrong-key-of-a-length")
        assert daemon.metrics.counts()["refused"] == 1
    assert [event["type"] for event in events] == ["exception"]
    assert "401" in json.dumps(events)


@pytest.mark.parametrize("client", [one for one in CLIENTS if one.unknown], ids=str)
async def test_a_wrong_option_is_told(
    client: Foreign, tmp_path: Path, settings: dict[str, Any]
) -> None:
    job = Job(bytes(48_000), client.unknown, {})
    async with serving(ScriptedEngine(), **settings) as daemon:
        (events,) = await run(client, daemon, tmp_path, [job])
    wrong = [event for event in events if event["type"] in ("exception", "error")]
    assert wrong
    assert "400" in json.dumps(wrong) or "no field `tempo`" in json.dumps(wrong)
