# mypy: ignore-errors
"""Wyoming's own client as Home Assistant uses it: a connection with an utterance for each job; texts are printed.

python wyoming_client.py URI KEY JOBS     (a JSON file: [{"audio": path of int16, "options": {…}}, …])
"""

import asyncio
import json
import sys
from pathlib import Path

from wyoming.asr import Transcribe, Transcript, TranscriptChunk
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncClient
from wyoming.error import Error
from wyoming.info import Describe, Info

WIDTH, SAMPLES = 2, 1_024  # Home Assistant's


async def transcribe(client: AsyncClient, audio: bytes, options: dict) -> dict:
    rate, channels = options.get("rate", 16_000), options.get("channels", 1)
    await client.write_event(Transcribe(language=options["language"]).event())
    await client.write_event(AudioStart(rate=rate, width=WIDTH, channels=channels).event())
    size = SAMPLES * WIDTH * channels
    for at in range(0, len(audio), size):
        chunk = AudioChunk(rate, WIDTH, channels, audio[at : at + size])
        await client.write_event(chunk.event())
    await client.write_event(AudioStop().event())
    found = {"type": "text", "text": "", "chunks": "", "kinds": []}
    while (event := await client.read_event()) is not None:
        found["kinds"].append(event.type)
        if Error.is_type(event.type):
            return {"type": "exception", "error": Error.from_event(event).text}
        if TranscriptChunk.is_type(event.type):
            found["chunks"] += TranscriptChunk.from_event(event).text
        if Transcript.is_type(event.type):
            found["text"] = Transcript.from_event(event).text
        if event.type == "transcript-stop":
            break
    return found


async def main(uri: str, _key: str, jobs: str) -> None:
    async with AsyncClient.from_uri(uri) as client:
        await client.write_event(Describe().event())
        info = Info.from_event(await client.read_event())
        streams = all(program.supports_transcript_streaming for program in info.asr)
        models = [model.name for program in info.asr for model in program.models]
        for number, job in enumerate(json.loads(Path(jobs).read_text())):  # noqa: ASYNC240
            audio = Path(job["audio"]).read_bytes()  # noqa: ASYNC240 - nothing else runs
            about = {"job": number, "models": models, "streams": streams}
            about |= await transcribe(client, audio, job["options"])
            print(json.dumps(about), flush=True)


asyncio.run(main(*sys.argv[1:]))
