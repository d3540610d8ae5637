# mypy: ignore-errors
"""OpenAI's own client: streams raw 24 kHz PCM and prints every event that it got, one a line.

python openai_realtime.py PORT KEY AUDIO SESSION
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
FRAME = 24_000  # bytes: half a second


async def main(port: str, key: str, audio: str, session: str) -> None:
    client = AsyncOpenAI(api_key=key, base_url=f"http://127.0.0.1:{port}/v1", max_retries=0)
    data = Path(audio).read_bytes()  # noqa: ASYNC240 - nothing else runs yet
    async with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        await connection.session.update(session=json.loads(session))
        for first in range(0, len(data), FRAME):
            chunk = base64.b64encode(data[first : first + FRAME]).decode()
            await connection.input_audio_buffer.append(audio=chunk)
        await connection.input_audio_buffer.commit()
        await connection.input_audio_buffer.clear()
        committed, done, cleared = 0, 0, False
        while not cleared or committed > done:
            raw = await connection.recv_bytes()
            event = PARSER.validate_json(raw)
            print(json.dumps({"class": type(event).__name__, **json.loads(raw)}), flush=True)
            committed += event.type == "input_audio_buffer.committed"
            done += event.type == COMPLETED
            cleared |= event.type in ("input_audio_buffer.cleared", "error")


asyncio.run(main(*sys.argv[1:]))
