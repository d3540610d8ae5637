# mypy: ignore-errors
"""Vosk's own transcriber against a server: a stream for each job; its results are printed, one a line.

python vosk_server.py PORT KEY JOBS     (a JSON file: [{"audio": path of int16, "options": {}}, …])
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
url = f"ws://127.0.0.1:{sys.argv[1]}/?token={sys.argv[2]}"
transcriber.args = Namespace(server=url, output_type="srt")
for number, job in enumerate(json.loads(Path(sys.argv[3]).read_text())):
    process = Process(Path(job["audio"]).read_bytes())
    try:
        result, _ = asyncio.run(transcriber.recognize_stream_server(process))
    except Exception as error:  # noqa: BLE001 - what it is, is told
        print(json.dumps({"job": number, "type": "exception", "error": repr(error)}))
        continue
    about = {"type": "kept", "result": result, "srt": transcriber.format_result(result)}
    print(json.dumps({"job": number} | about), flush=True)
