# mypy: ignore-errors
"""OpenAI's own client: a session for each job, every event that it got printed, one a line.

python openai_realtime.py PORT KEY JOBS     (a JSON file: [{"audio": path, "options": session}, …])
"""

import asyncio
import base64
import json
import sys
from pathlib import Path

from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

PARSER = TypeAdapter(RealtimeServerEvent)
COMPLETED = "conversation.item.input_audio_transcription.completed"
FRAME = 24_000  # bytes


async def transcribe(
    client: AsyncOpenAI,
    number: int,
    audio: str,
    options: dict,
    pause_at: int = 0,
    flush: bool = False,
) -> None:
    data = Path(audio).read_bytes()  # noqa: ASYNC240 - nothing else runs
    async with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        await connection.session.update(session=options)
        for part in (data[:pause_at], data[pause_at:]):
            for first in range(0, len(part), FRAME):
                chunk = base64.b64encode(part[first : first + FRAME]).decode()
                await connection.input_audio_buffer.append(audio=chunk)
            if flush and part:
                await connection.input_audio_buffer.commit()
        if not flush:
            await connection.input_audio_buffer.commit()
        await connection.input_audio_buffer.clear()
        committed, done, cleared = 0, 0, False
        while not cleared or committed > done:
            raw = await connection.recv_bytes()
            event = PARSER.validate_json(raw)
            about = {"job": number, "class": type(event).__name__}
            print(json.dumps(about | json.loads(raw)), flush=True)
            committed += event.type == "input_audio_buffer.committed"
            done += event.type == COMPLETED
            cleared |= event.type in ("input_audio_buffer.cleared", "error")


async def main(port: str, key: str, jobs: str) -> None:
    client = AsyncOpenAI(api_key=key, base_url=f"http://127.0.0.1:{port}/v1", max_retries=0)
    for number, job in enumerate(json.loads(Path(jobs).read_text())):  # noqa: ASYNC240
        try:
            await transcribe(client, number, **job)
        except Exception as error:  # noqa: BLE001 - what it is, is told
            print(json.dumps({"job": number, "type": "exception", "error": repr(error)}))


asyncio.run(main(*sys.argv[1:]))
