"""The clients of other projects: what they need, how they are run, and what they can."""

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemon.server import Daemon
from tests.support import foreign_jobs as jobs
from tests.support.client_node import node_modules
from tests.support.client_venv import python_of
from tests.support.fakes import PATIENCE
from tests.support.foreign_jobs import Event, Job
from tests.support.streams import Samples

SCRIPTS = Path(__file__).parent / "clients"
KEY = "a-key-of-some-length"


def on_the_port(daemon: Daemon) -> str:
    return str(daemon.port)


def wyoming_address(daemon: Daemon) -> str:
    assert daemon.streams.server is not None
    return f"tcp://127.0.0.1:{daemon.streams.server.port}"


@dataclass(frozen=True)
class Foreign:
    """A client. texts: of its finals, from what it printed. place: its script's first argument.

    keys, flushes, lives: whether it can send a key, a flush, and a keep-alive. unknown: options that captiond
    refuses, and `refused` stands in what it is told.
    """

    name: str
    script: str
    requirements: tuple[str, ...]
    job: Callable[[Samples, str, str], Job]
    texts: Callable[[list[Event]], list[str]]
    alone: tuple[str, ...] = ()
    place: Callable[[Daemon], str] = on_the_port
    keys: bool = True
    flushes: bool = False
    lives: bool = False
    unknown: dict[str, Any] = field(default_factory=dict)
    refused: str = "400"

    def __str__(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        """What it is, with its version."""
        package = (*self.alone, *self.requirements)[0].replace("==", " ")
        return f"{self.name}: `{package}`"

    def command(self) -> list[str]:
        """What starts its script. Skips where it cannot be installed."""
        script = SCRIPTS / self.script
        if script.suffix == ".py":
            return [str(python_of(self.name, self.requirements, alone=self.alone)), str(script)]
        folder = node_modules(*self.requirements)
        shutil.copy(script, folder)
        return ["node", str(folder / self.script)]


CLIENTS = [
    Foreign(
        "openai",
        "openai_realtime.py",
        ("openai[realtime]==3.57.0",),
        jobs.openai_job,
        jobs.openai_texts,
        flushes=True,
        unknown={"type": "transcription", "audio": {"input": {"tempo": 1}}},
        refused="no field `tempo`",
    ),
    Foreign(
        "deepgram",
        "deepgram_live.py",
        ("deepgram-sdk==7.17.0",),
        jobs.deepgram_job,
        jobs.deepgram_texts,
        flushes=True,
        lives=True,
        unknown={"model": "nova-3", "redact": "pci"},
    ),
    Foreign(
        "deepgram-node",
        "deepgram_live.mjs",
        ("@deepgram/sdk@5.13.0",),
        jobs.deepgram_job,
        jobs.deepgram_texts,
        flushes=True,
        lives=True,
        unknown={"model": "nova-3", "redact": "pci"},
    ),
    Foreign(
        "assemblyai",
        "assemblyai_v3.py",
        ("assemblyai==1.8.2",),
        jobs.assemblyai_job,
        jobs.assemblyai_texts,
        flushes=True,
        lives=True,
        unknown={"sample_rate": 16_000, "redact_pii": True},
    ),
    Foreign(
        "whisperlive",
        "whisperlive.py",
        ("websocket-client==1.8.0", "loguru==0.7.3", "numpy"),
        jobs.whisperlive_job,
        jobs.whisperlive_texts,
        alone=("whisper-live-client==0.6.3",),
        place=lambda daemon: str(daemon.config.whisperlive_port),
        keys=False,
        unknown={"lang": "klingon"},
        refused="unknown language",
    ),
    Foreign(
        "vosk",
        "vosk_server.py",
        ("vosk==0.3.45",),
        jobs.vosk_job,
        jobs.vosk_texts,
        place=lambda daemon: str(daemon.config.vosk_port),
    ),
    Foreign(
        "wyoming",
        "wyoming_client.py",
        ("wyoming==1.10.2",),
        jobs.wyoming_job,
        jobs.file_texts,
        place=wyoming_address,
        keys=False,
        unknown={"language": "klingon"},
        refused="unknown language",
    ),
    Foreign(
        "openai-files",
        "openai_files.py",
        ("openai[realtime]==3.57.0",),
        jobs.file_job,
        jobs.file_texts,
        unknown={"language": "klingon"},
    ),
    Foreign(
        "openai-files-node",
        "openai_files.mjs",
        ("openai@7.59.0",),
        jobs.file_job,
        jobs.file_texts,
        unknown={"language": "klingon"},
    ),
    Foreign(
        "deepgram-files",
        "deepgram_files.py",
        ("deepgram-sdk==7.17.0",),
        jobs.file_job,
        jobs.file_texts,
        unknown={"redact": "pci"},
    ),
    Foreign(
        "deepgram-files-node",
        "deepgram_files.mjs",
        ("@deepgram/sdk@5.13.0",),
        jobs.file_job,
        jobs.file_texts,
        unknown={"redact": "pci"},
    ),
]


async def started(
    client: Foreign, daemon: Daemon, folder: Path, jobs: list[Job], key: str = KEY, **how: Any
) -> asyncio.subprocess.Process:
    """Its process, at work. how: at which byte (`pause_at`) it flushes, or sends so many keep-alives."""
    command = await asyncio.to_thread(client.command)
    work = []
    for number, job in enumerate(jobs):
        path = folder / f"{number}.raw"
        path.write_bytes(job.file or job.audio)
        work.append({"audio": str(path), "options": job.options, **how})
    (folder / "jobs").write_text(json.dumps(work))
    return await asyncio.create_subprocess_exec(
        *command,
        client.place(daemon),
        key,
        str(folder / "jobs"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(
    client: Foreign, daemon: Daemon, folder: Path, jobs: list[Job], key: str = KEY, **how: Any
) -> list[list[Event]]:
    """What the client prints, by job."""
    process = await started(client, daemon, folder, jobs, key, **how)
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()[-2000:]
    events = [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]
    return [[event for event in events if event.get("job") == n] for n in range(len(jobs))]
