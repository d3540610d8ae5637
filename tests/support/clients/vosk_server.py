# mypy: ignore-errors
"""Vosk's own transcriber against a server: streams 16 kHz int16 and prints the finals.

python vosk_server.py PORT AUDIO
"""

import asyncio
import io
import json
import sys
from argparse import Namespace
from pathlib import Path

from vosk.transcriber.transcriber import Transcriber


class Process:
    """Stands in for ffmpeg, which gives the same bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self.stdout = self

    async def read(self, size: int) -> bytes:
        return self._data.read(size)


transcriber = Transcriber.__new__(Transcriber)  # its own way loads a model
transcriber.args = Namespace(server=f"ws://127.0.0.1:{sys.argv[1]}", output_type="srt")
process = Process(Path(sys.argv[2]).read_bytes())
result, _ = asyncio.run(transcriber.recognize_stream_server(process))
print(json.dumps({"result": result, "srt": transcriber.format_result(result)}))
