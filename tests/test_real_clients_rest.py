"""Other projects' own clients, unmodified, against a daemon whose recogniser is a script."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from numpy.typing import NDArray

from daemon.server import Daemon
from streaming.protocol import Final, Start, Stop
from tests.support.client_node import node_modules
from tests.support.client_venv import python_of
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.wire import calling, frames, serving, speech

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parent / "support" / "clients"
OPENAI = ("openai[realtime]==3.57.0",)
DEEPGRAM = ("deepgram-sdk==7.17.0",)
KEY = "sesame-open-the-door"


async def output_of(*command: str, cwd: Path | None = None) -> Any:
    """What a client prints, as JSON."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()[-2000:]
    return json.loads(out)


@asynccontextmanager
async def with_keys(tmp_path: Path) -> AsyncIterator[Daemon]:
    """A daemon that knows one key. What a request is heard as depends on its every sample."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"me {KEY}\n")
    async with serving(ScriptedEngine(), tokens_file=str(tokens)) as daemon:
        yield daemon


async def own_finals(daemon: Daemon, audio: bytes, **start: Any) -> str:
    """What captiond's own protocol gives for the same samples."""
    key = {"Authorization": f"Bearer {KEY}"}
    async with calling(daemon, additional_headers=key) as client:
        await client.say(Start(partials=False, **start), *frames(audio, 2**18), Stop())
        await client.hear_all()
        return " ".join(final.text for final in client.all(Final) if final.text)


def samples(rate: int, channels: int) -> NDArray[np.int16]:
    """The sample at another rate: int16 [samples, channels]."""
    mono = np.frombuffer(speech(), "<i2").astype(np.float32) / 32_768
    found = (soxr.resample(mono, 16_000, rate) * 32_767).clip(-32_768, 32_767).astype("<i2")
    return np.asarray(np.repeat(found[:, None], channels, axis=1), np.int16)


@pytest.mark.parametrize(
    ("name", "rate", "channels", "subtype"),
    [
        ("a.flac", 16_000, 1, "PCM_16"),
        ("a.wav", 48_000, 2, "PCM_16"),
        ("telephone.wav", 8_000, 1, "ULAW"),
    ],
)
async def test_openais_python_client(
    tmp_path: Path, name: str, rate: int, channels: int, subtype: str
) -> None:
    python = await asyncio.to_thread(python_of, "openai", OPENAI)
    path = tmp_path / name
    soundfile.write(path, samples(rate, channels), rate, subtype=subtype)
    sound, _ = soundfile.read(path, dtype="int16")
    async with with_keys(tmp_path) as daemon:
        own = await own_finals(daemon, sound.tobytes(), rate=rate, channels=channels)
        url = f"http://127.0.0.1:{daemon.port}/v1"
        found = await output_of(
            str(python), str(SCRIPTS / "openai_rest_client.py"), url, KEY, str(path)
        )
    assert found["json"]["text"] == found["text"].strip() == found["translation"] == own
    assert found["verbose_json"]["text"] == own
    assert found["verbose_json"]["segments"][0]["text"].strip() == own.split()[0]
    deltas = [event["delta"] for event in found["events"] if event["type"].endswith("delta")]
    assert "".join(deltas) == own == found["events"][-1]["text"]
    assert found["models"][0] == "scripted"
    assert {name: error[:2] for name, error in found["errors"].items()} == {
        "key": ["AuthenticationError", 401],
        "model": ["NotFoundError", 404],
        "language": ["BadRequestError", 400],
        "sound": ["BadRequestError", 400],
    }


async def test_openais_node_client(tmp_path: Path) -> None:
    folder = await asyncio.to_thread(node_modules, "openai@7.59.0")
    script = folder / "client.mjs"
    shutil.copy(SCRIPTS / "openai_rest_client.mjs", script)
    path = tmp_path / "a.flac"
    soundfile.write(path, samples(16_000, 1), 16_000)
    async with with_keys(tmp_path) as daemon:
        own = await own_finals(daemon, speech())
        url = f"http://127.0.0.1:{daemon.port}/v1"
        found = await output_of("node", str(script), url, KEY, str(path), cwd=folder)
    assert found["json"]["text"] == found["text"].strip() == found["verbose_json"]["text"] == own
    assert "".join(event.get("delta", "") for event in found["events"]) == own
    assert found["error"] == [404, "model_not_found"]
    assert "scripted" in found["models"]


async def test_curl(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    path = tmp_path / "a.wav"
    soundfile.write(path, np.repeat(samples(48_000, 2), 2, axis=0), 48_000)  # large: it asks first
    async with with_keys(tmp_path) as daemon:
        url = f"http://127.0.0.1:{daemon.port}/v1/audio/transcriptions"
        form = ["-F", f"file=@{path}", "-F", "model=whisper-1"]
        found = await output_of(
            "curl", "-sS", "--fail", "-H", f"Authorization: Bearer {KEY}", *form, url
        )
    assert found["text"]


async def test_deepgrams_python_client(tmp_path: Path) -> None:
    python = await asyncio.to_thread(python_of, "deepgram", DEEPGRAM)
    path = tmp_path / "a.flac"
    soundfile.write(path, samples(16_000, 1), 16_000)
    async with with_keys(tmp_path) as daemon:
        own = await own_finals(daemon, speech(), language="en")
        url = f"http://127.0.0.1:{daemon.port}"
        found = await output_of(
            str(python), str(SCRIPTS / "deepgram_recorded.py"), url, KEY, str(path)
        )
    results = found["answer"]["results"]
    assert results["channels"][0]["alternatives"][0]["transcript"] == own
    assert " ".join(one["transcript"] for one in results["utterances"]) == own
    assert found["answer"]["metadata"]["channels"] == 1
    assert found["errors"]["key"][0] == 401
    assert found["errors"]["option"][0] == 400
    assert "redact" in found["errors"]["option"][1]["err_msg"]


async def test_many_at_once_get_their_own(tmp_path: Path) -> None:
    """Each its own recording: nothing of one is in another."""
    python = await asyncio.to_thread(python_of, "openai", OPENAI)
    script = (
        "import json, openai, sys\n"
        "c = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2])\n"
        "f = open(sys.argv[3], 'rb')\n"
        "print(json.dumps(c.audio.transcriptions.create(file=f, model='whisper-1').text))\n"
    )
    async with with_keys(tmp_path) as daemon:
        expected, clients = [], []
        for number in range(3):
            sound = np.frombuffer(speech(), "<i2")[: (4 + 5 * number) * 16_000]
            path = tmp_path / f"{number}.wav"
            soundfile.write(path, sound, 16_000)
            expected.append(await own_finals(daemon, sound.tobytes()))
            url = f"http://127.0.0.1:{daemon.port}/v1"
            clients.append(output_of(str(python), "-c", script, url, KEY, str(path)))
        assert await asyncio.gather(*clients) == expected
        assert json.dumps(expected[0]) != json.dumps(expected[1])
