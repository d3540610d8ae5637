"""Wyoming's own client as Home Assistant uses it: URI and raw audio in; the events that come back as JSON."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from wyoming.asr import Transcribe, Transcript  # type: ignore[import-not-found]
from wyoming.audio import AudioChunk, AudioStart, AudioStop  # type: ignore[import-not-found]
from wyoming.client import AsyncClient  # type: ignore[import-not-found]
from wyoming.info import Describe, Info  # type: ignore[import-not-found]

RATE, WIDTH, CHANNELS, SAMPLES = 16_000, 2, 1, 1_024  # Home Assistant's


async def main(uri: str, audio: bytes) -> None:
    found: dict[str, list[Any]] = {"events": [], "texts": []}
    async with AsyncClient.from_uri(uri) as client:
        await client.write_event(Describe().event())
        info = Info.from_event(await client.read_event())
        found["models"] = [model.name for program in info.asr for model in program.models]
        found["streams"] = [program.supports_transcript_streaming for program in info.asr]
        for _ in range(2):
            await client.write_event(Transcribe(language="en").event())
            await client.write_event(AudioStart(rate=RATE, width=WIDTH, channels=CHANNELS).event())
            size = SAMPLES * WIDTH
            for at in range(0, len(audio), size):
                chunk = AudioChunk(RATE, WIDTH, CHANNELS, audio[at : at + size])
                await client.write_event(chunk.event())
            await client.write_event(AudioStop().event())
            while (event := await client.read_event()) is not None:
                found["events"].append(event.type)
                if Transcript.is_type(event.type):
                    found["texts"].append(Transcript.from_event(event).text)
                if event.type == "transcript-stop":
                    break
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]).read_bytes()))
