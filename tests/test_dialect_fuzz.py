"""Twenty thousand frames for each protocol, from its grammar and from bytes: no crash, no neighbour's caption changed.

The frames are the same in each run: each dialect has a seed of its own.
"""

import asyncio
import json
import random
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from streaming.dialects.dialect import Dialect, Told
from streaming.dialects.offers import OFFERS, Offer
from streaming.dialects.whisperlive import END_OF_AUDIO
from streaming.dialects.wyoming import Wyoming
from tests.support.dialects import Conversation, Frame, opening
from tests.support.fakes import ScriptedEngine
from tests.support.wire import serving, talk

FRAMES = 20_000
SAMPLE = 500  # of them, in each run of the fast tier
OVER_SOCKETS = 600  # of them
FILES = 60  # requests with a recording that is none
FOREIGN = [offer for offer in OFFERS if offer.options]

Grammar = dict[str, list[Callable[[random.Random], Frame]]]


def noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([0, 1, 2, 3, 160, 641, 3_200]))


def text(**about: object) -> Callable[[random.Random], Frame]:
    return lambda _: json.dumps(about)


def append(chance: random.Random) -> Frame:
    audio = b64encode(noise(chance)).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


def update(chance: random.Random) -> Frame:
    form = {"type": chance.choice(["audio/pcm", "audio/pcmu", "audio/opus"])}
    turns = chance.choice(
        [None, {"type": "server_vad", "silence_duration_ms": chance.randrange(9_999)}]
    )
    session = {
        "type": "transcription",
        "audio": {"input": {"format": form, "turn_detection": turns}},
    }
    return json.dumps({"type": "session.update", "session": session})


def event(kind: str, **data: object) -> Callable[[random.Random], Frame]:
    """One of Wyoming's, its data in the line or behind it."""

    def made(chance: random.Random) -> Frame:
        payload = noise(chance) if kind == "audio-chunk" else b""
        behind = json.dumps(data).encode() if chance.randrange(2) else b""
        lengths = {"data_length": len(behind), "payload_length": len(payload)}
        head = {"type": kind, **lengths} | ({} if behind else {"data": data})
        return json.dumps(head).encode() + b"\n" + behind + payload

    return made


FORMAT = {"rate": 16_000, "width": 2, "channels": 1}
GRAMMAR: Grammar = {
    "OpenAI Realtime": [
        append, append, append, update, text(type="input_audio_buffer.commit"),
        text(type="input_audio_buffer.clear"),
        text(type="transcription_session.update", session={"input_audio_format": "pcm16"}),
    ],
    "Deepgram": [
        noise, noise, text(type="KeepAlive"), text(type="Finalize"), text(type="Configure"),
        text(type="CloseStream"),
    ],
    "AssemblyAI": [
        noise, noise, text(type="KeepAlive"), text(type="ForceEndpoint"), text(type="Terminate"),
        text(type="UpdateConfiguration", prompt="x"),
    ],
    "WhisperLive": [
        text(uid="u", language="en", audio_format="int16"), text(uid="u"), noise, noise,
        lambda _: END_OF_AUDIO,
    ],
    "Vosk": [
        noise, noise, text(config={"sample_rate": 16000}), text(reset=1), text(eof=1),
        text(config={"words": 0, "max_alternatives": 2}),
    ],
    "Wyoming": [
        event("describe"), event("transcribe", language="en"), event("transcribe", language=1),
        event("audio-start", **FORMAT), event("audio-chunk", **FORMAT), event("audio-chunk", **FORMAT),
        event("audio-chunk", rate=8_000, width=2, channels=2), event("audio-stop"), event("ping", text="x"),
    ],
}  # fmt: skip


def spoilt(frame: Frame, chance: random.Random) -> Frame:
    """One time in four something of it is cut off, doubled, or of another kind."""
    match chance.randrange(12):
        case 0:
            return frame[: chance.randrange(len(frame) + 1)]
        case 1:
            return frame.decode("latin-1") if isinstance(frame, bytes) else frame.encode()
        case 2:
            at = chance.randrange(len(frame) + 1)
            return frame[:at] + frame[at // 2 :]  # type: ignore[operator]  # both are of one kind
        case _:
            return frame


def frames(title: str, count: int) -> list[Frame]:
    chance = random.Random(title)
    grammar = GRAMMAR[title]
    return [spoilt(chance.choice(grammar)(chance), chance) for _ in range(count)]


class Stream(Conversation):
    """Over a byte stream: what comes is bytes, what goes has several lines."""

    def say(self, *frames: Frame) -> None:
        super().say(*(one.encode() if isinstance(one, str) else one for one in frames))

    def tell(self, message: Told) -> None:
        lines = [line for one in self.dialect.encode(message) for line in one.splitlines()]
        self.sent += map(json.loads, lines)


def conversation(title: str) -> Conversation:
    about = opening()
    if title == "Wyoming":
        return Stream(Wyoming(about, model="m", languages=("en",)))
    dialects: dict[str, Callable[..., Dialect]] = {one.title: one.dialect for one in FOREIGN}
    return Conversation(dialects[title](about))


def endured(title: str, count: int) -> int:
    """How many sessions so many frames made: one that ends makes room for the next."""
    client = conversation(title)
    sessions = 1
    for frame in frames(title, count):
        client.say(frame)
        if client.over or client.errors > 9:
            sessions += 1
            client = conversation(title)
    return sessions


@pytest.mark.parametrize("title", GRAMMAR)
def test_no_frame_is_too_much(title: str) -> None:
    assert endured(title, SAMPLE) > 1


@pytest.mark.slow
@pytest.mark.parametrize("title", GRAMMAR)
def test_no_frame_of_many_is_too_much(title: str) -> None:
    assert endured(title, FRAMES) > 10


async def pester(port: int, offer: Offer) -> None:
    rest = frames(offer.title, OVER_SOCKETS)
    while rest:
        with suppress(ConnectionClosed):
            async with connect(f"ws://127.0.0.1:{port}{offer.paths[0]}") as socket:
                while rest:
                    await socket.send(rest.pop())


async def pour(port: int, pieces: list[bytes]) -> None:
    """Each piece in turn, on as many connections as that takes."""
    while pieces:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            while pieces and not reader.at_eof():
                writer.write(pieces.pop())
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(2**16), 0.01)
        writer.close()


def requests(count: int) -> Iterator[bytes]:
    """Forms with a file of noise behind a header, or of a WAV's beginning; some are cut off."""
    chance = random.Random("files")
    begin = b'--x\r\nContent-Disposition: form-data; name="'
    for _ in range(count):
        file = chance.choice([b"RIFF\xff\xff\xff\xffWAVEfmt ", b"fLaC", b"OggS", b""]) + noise(
            chance
        )
        body = begin + b'model"\r\n\r\nwhisper-1\r\n' + begin
        body += b'file"; filename="a"\r\n\r\n' + file + b"\r\n--x--\r\n"
        path = chance.choice(["/v1/audio/transcriptions", "/v1/listen", "/v1/models", "/"])
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        whole = head.encode() + b"Content-Type: multipart/form-data; boundary=x\r\n\r\n" + body
        frame = spoilt(whole, chance)
        yield frame.encode() if isinstance(frame, str) else frame


@pytest.mark.slow
async def test_a_neighbour_notices_nothing() -> None:
    events = [one for one in frames("Wyoming", OVER_SOCKETS) if isinstance(one, bytes)]
    here: dict[str, Any] = {"wyoming": "tcp://127.0.0.1:0", "start_timeout_seconds": 5.0}
    async with serving(ScriptedEngine(), **here) as daemon:
        assert daemon.streams.server is not None
        quiet = [final.text for final in await talk(daemon)]
        pests = [asyncio.create_task(pester(daemon.port, offer)) for offer in FOREIGN]
        pests.append(asyncio.create_task(pour(daemon.streams.server.port, events)))
        pests.append(asyncio.create_task(pour(daemon.port, list(requests(FILES)))))
        said = []
        while not all(pest.done() for pest in pests):
            said.append([final.text for final in await talk(daemon)])
        await asyncio.gather(*pests)
    assert said
    assert all(one == quiet for one in said)
