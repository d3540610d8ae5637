"""The clients of other projects themselves, unmodified, each in an environment of its own.

The finals of each must equal, text for text, those of captiond's own client for the same bytes. The
recogniser is a script that answers with a digest of what it hears: the texts are equal only if every
sample is.
"""

import asyncio
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.server import Daemon
from model.engine.requests import Request
from streaming.protocol import SAMPLE_RATE, Final, Flush, Start, Stop
from tests.support.audio import Recording, needs_audio, recordings
from tests.support.fakes import ScriptedEngine
from tests.support.foreign_clients import CLIENTS, KEY, Foreign, run, started
from tests.support.foreign_jobs import END, Job
from tests.support.streams import Samples
from tests.support.wire import calling, frames, free_port, serving, speech, until

pytestmark = pytest.mark.slow

each_client = pytest.mark.parametrize("client", CLIENTS, ids=str)


def those(has: Callable[[Foreign], object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", [one for one in CLIENTS if has(one)], ids=str)


def digest(request: Request) -> str:
    """What the script hears; no text of one is that of another."""
    return f"{len(request.audio)} samples of {zlib.crc32(request.audio.tobytes()):08x}{END}"


async def own_finals(daemon: Daemon, job: Job, *, flush_at: int = 0) -> list[Final]:
    """Captiond's own, of the same bytes."""
    headers = {"Authorization": f"Bearer {KEY}"}
    early: list[Flush | bytes] = [*frames(job.audio[:flush_at]), Flush()] if flush_at else []
    async with calling(daemon, additional_headers=headers) as client:
        await client.say(Start(**job.start), *early, *frames(job.audio[flush_at:]), Stop())
        await client.hear_all()
        return client.all(Final)


def sample() -> Samples:
    return np.frombuffer(speech(), "<i2").astype(np.float32) / np.float32(32_768)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Of a daemon with a token and all ports."""
    path = tmp_path / "tokens"
    path.write_text(f"alice {KEY}\n")
    ports = {"whisperlive_port": free_port(), "vosk_port": free_port()}
    return {"tokens_file": str(path), "wyoming": "tcp://127.0.0.1:0", **ports}


def settings_for(client: Foreign, settings: dict[str, Any]) -> dict[str, Any]:
    return settings | ({} if client.keys else {"tokens_file": ""})


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
    assert not [event for event in events if event["type"].lower() in ("error", "exception")], (
        events
    )
    assert not [event for event in events if event.get("class") == "ConversationCreatedEvent"]
    assert said(client.texts(events)) == said(own)
    assert len(own) > 5


def said(texts: list[str]) -> list[str]:
    return [text.removesuffix(END) for text in texts]


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


@those(lambda one: one.flushes)
async def test_a_flush_ends_what_is_spoken(
    client: Foreign, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """In the middle of a word, and what follows is heard as after captiond's own."""
    job = client.job(sample()[: 12 * SAMPLE_RATE], "en", "plain")
    middle = len(job.audio) // 8 * 2
    async with serving(ScriptedEngine(text=digest), **settings_for(client, settings)) as daemon:
        (events,) = await run(client, daemon, tmp_path, [job], pause_at=middle, flush=True)
        own = [final.text for final in await own_finals(daemon, job, flush_at=middle)]
        whole = [final.text for final in await own_finals(daemon, job)]
    assert said(client.texts(events)) == said([text for text in own if text]) != said(whole)


@those(lambda one: one.lives)
async def test_a_keep_alive_keeps_the_session(
    client: Foreign, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Longer than silence on the wire may last; no word is changed by it."""
    job = client.job(sample()[: 12 * SAMPLE_RATE], "en", "plain")
    here = settings_for(client, settings) | {"idle_seconds": 2.0}
    async with serving(ScriptedEngine(text=digest), **here) as daemon:
        half = len(job.audio) // 4 * 2
        (events,) = await run(client, daemon, tmp_path, [job], pause_at=half, keep_alive=6)
        own = [final.text for final in await own_finals(daemon, job)]
    assert said(client.texts(events)) == said(own)


@those(lambda one: one.keys)
async def test_a_wrong_key_is_told(
    client: Foreign, tmp_path: Path, settings: dict[str, Any]
) -> None:
    job = client.job(sample()[:SAMPLE_RATE], "en", "plain")
    async with serving(ScriptedEngine(), **settings) as daemon:
        (events,) = await run(client, daemon, tmp_path, [job], key="a-wrong-key-of-a-length")
        assert daemon.metrics.counts()["refused"] == 1
    assert [event["type"] for event in events] == ["exception"]
    assert "401" in json.dumps(events)


@those(lambda one: one.unknown)
async def test_a_wrong_option_is_told(
    client: Foreign, tmp_path: Path, settings: dict[str, Any]
) -> None:
    job = client.job(np.zeros(SAMPLE_RATE, np.float32), "en", "plain")
    async with serving(ScriptedEngine(), **settings_for(client, settings)) as daemon:
        (events,) = await run(client, daemon, tmp_path, [replace(job, options=client.unknown)])
    wrong = [event for event in events if event["type"] in ("exception", "error")]
    assert wrong
    assert client.refused in json.dumps(wrong)


async def test_wyoming_over_a_unix_socket(tmp_path: Path) -> None:
    """As Home Assistant asks: what there is, then one utterance after another on one connection."""
    uri = f"unix://{tmp_path}/wyoming.sock"
    (client,) = (one for one in CLIENTS if one.name == "wyoming")
    job = client.job(sample(), "en", "plain")
    async with serving(ScriptedEngine(text=digest), wyoming=uri) as daemon:
        there = replace(client, place=lambda _: uri)
        both = await run(there, daemon, tmp_path, [job, job])
        own = [final.text for final in await own_finals(daemon, job)]
    for (event,) in both:
        assert said(client.texts([event])) == said(own)
        assert event["chunks"] == event["text"]
        assert (event["models"], event["streams"]) == (["scripted"], True)
        assert event["kinds"].count("transcript-start") == 1
        assert event["kinds"][-2:] == ["transcript", "transcript-stop"]
