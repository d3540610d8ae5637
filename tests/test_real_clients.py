"""The clients of other projects themselves, unmodified, each in an environment of its own.

The finals of each must equal, text for text, those of captiond's own client for the same bytes.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr

from daemon.server import Daemon
from streaming.protocol import Final, Start, Stop
from tests.support.client_venv import python_of
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.wire import calling, frames, free_port, serving, speech

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parent / "support" / "clients"
KEY = "a-key-of-some-length"
OPENAI = ("openai[realtime]==3.57.0",)
DEEPGRAM = ("deepgram-sdk==7.17.0",)
ASSEMBLYAI = ("assemblyai==1.8.2",)
VOSK = ("vosk==0.3.45",)
WHISPERLIVE = ("websocket-client==1.8.0", "loguru==0.7.3", "numpy")

Events = list[dict[str, Any]]


async def run(python: Path, script: str, *arguments: object) -> Events:
    """What the client prints: JSON lines."""
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(SCRIPTS / script),
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()[-2000:]
    return [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]


async def own_finals(daemon: Daemon, audio: bytes, **start: Any) -> list[Final]:
    """Captiond's own, of the same bytes."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with calling(daemon, additional_headers=headers) as client:
        await client.say(Start(**start), *frames(audio), Stop())
        await client.hear_all()
        return client.all(Final)


def texts(finals: list[Final]) -> list[str]:
    return [final.text for final in finals]


def at_24k(audio: bytes) -> bytes:
    samples = np.frombuffer(audio, "<i2").astype(np.float32) / 32_768
    louder = soxr.resample(samples, 16_000, 24_000).clip(-1, 1)
    return (louder * 32_767).astype("<i2").tobytes()


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    path = tmp_path / "tokens"
    path.write_text(f"alice {KEY}\n")
    return str(path)


def engine() -> ScriptedEngine:
    return ScriptedEngine(text=lambda request: f"Words of {len(request.audio)} samples, said.")


def written(folder: Path, audio: bytes) -> Path:
    path = folder / "audio.raw"
    path.write_bytes(audio)
    return path


@pytest.mark.parametrize("turns", [True, False])
async def test_openai_realtime(tmp_path: Path, tokens: str, turns: bool) -> None:
    python = await asyncio.to_thread(python_of, "openai", OPENAI)
    audio = at_24k(speech())
    path = written(tmp_path, audio)
    heard: dict[str, Any] = {"transcription": {"model": "whisper-1", "language": "en"}}
    session = {"type": "transcription", "audio": {"input": heard}}
    if not turns:
        heard["turn_detection"] = None
    async with serving(engine(), tokens_file=tokens) as daemon:
        events = await run(
            python, "openai_realtime.py", daemon.port, KEY, path, json.dumps(session)
        )
        own = await own_finals(daemon, audio, language="en", rate=24_000)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["session.created", "session.updated"]
    done = [
        event["transcript"] for event in events if event["type"].endswith("transcription.completed")
    ]
    assert " ".join(filter(None, done)) == " ".join(texts(own))
    assert len(done) == (len(own) if turns else 1) or done[-1] == ""
    assert not [event for event in events if event["class"] == "ConversationCreatedEvent"]


async def test_deepgram(tmp_path: Path, tokens: str) -> None:
    python = await asyncio.to_thread(python_of, "deepgram", DEEPGRAM)
    options = {
        "model": "nova-3",
        "language": "en",
        "encoding": "linear16",
        "sample_rate": 16_000,
        "interim_results": True,
        "utterance_end_ms": 1000,
        "vad_events": True,
        "smart_format": True,
    }
    path = written(tmp_path, speech())
    async with serving(engine(), tokens_file=tokens) as daemon:
        events = await run(python, "deepgram_live.py", daemon.port, KEY, path, json.dumps(options))
        own = await own_finals(daemon, speech(), language="en", words=True)
    assert {event["class"] for event in events} >= {
        "ListenV1Results",
        "ListenV1Metadata",
        "ListenV1SpeechStarted",
    }
    finals = [event for event in events if event["type"] == "Results" and event["is_final"]]
    assert [one["channel"]["alternatives"][0]["transcript"] for one in finals] == texts(own)
    for one, final in zip(finals, own, strict=True):
        words = one["channel"]["alternatives"][0]["words"]
        assert final.words is not None
        assert [word["start"] for word in words] == pytest.approx([w.start for w in final.words])


async def test_assemblyai(tmp_path: Path, tokens: str) -> None:
    python = await asyncio.to_thread(python_of, "assemblyai", ASSEMBLYAI)
    options = {"sample_rate": 16_000, "language_code": "en", "keyterms_prompt": ["captiond", "VAD"]}
    path = written(tmp_path, speech())
    recogniser = engine()
    async with serving(recogniser, tokens_file=tokens) as daemon:
        events = await run(python, "assemblyai_v3.py", daemon.port, KEY, path, json.dumps(options))
        prompts = {request.prompt for request in recogniser.admitted}
        own = await own_finals(daemon, speech(), language="en", words=True)
    assert prompts == {"captiond, VAD"}
    assert events[0]["class"] == "BeginEvent"
    assert events[-1]["class"] == "TerminationEvent"
    assert events[-1]["audio_duration_seconds"] == round(len(speech()) / 32_000)
    ended = [event for event in events if event["type"] == "Turn" and event["end_of_turn"]]
    assert [event["transcript"] for event in ended] == texts(own)


async def test_whisperlive(tmp_path: Path) -> None:
    python = await asyncio.to_thread(
        python_of, "whisperlive", WHISPERLIVE, alone=("whisper-live-client==0.6.3",)
    )
    path, port = written(tmp_path, speech()), free_port()
    async with serving(engine(), whisperlive_port=port) as daemon:
        (kept,) = await run(python, "whisperlive.py", port, path, "en")
        own = await own_finals(daemon, speech(), language="en")
    assert [segment["text"].strip() for segment in kept["transcript"]] == texts(own)
    assert [float(segment["start"]) for segment in kept["transcript"]] == pytest.approx(
        [final.start for final in own], abs=0.001
    )


async def test_vosk(tmp_path: Path) -> None:
    python = await asyncio.to_thread(python_of, "vosk", VOSK)
    path, port = written(tmp_path, speech()), free_port()
    async with serving(engine(), vosk_port=port) as daemon:
        (kept,) = await run(python, "vosk_server.py", port, path)
        own = await own_finals(daemon, speech(), words=True)
    assert " ".join(one["text"] for one in kept["result"] if one["text"]) == " ".join(texts(own))
    assert kept["srt"].startswith("1\n")
