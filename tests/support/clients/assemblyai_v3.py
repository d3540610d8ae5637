# mypy: ignore-errors
"""AssemblyAI's own client: a stream for each job, every event that it got printed, one a line.

python assemblyai_v3.py PORT KEY JOBS     (a JSON file: [{"audio": path, "options": {…}}, …])
"""

import json
import sys
import time
from pathlib import Path

from assemblyai.streaming.v3 import (
    StreamingClient,
    StreamingClientOptions,
    StreamingEvents,
    StreamingParameters,
)

FRAME = 3_200  # bytes: the service takes 50 to 1000 ms


def transcribe(options: StreamingClientOptions, number: int, job: dict) -> None:
    client = StreamingClient(options)

    def show(_client: object, event: object) -> None:
        about = {"job": number, "class": type(event).__name__}
        if hasattr(event, "model_dump_json"):
            type(event).model_validate_json(event.model_dump_json(), strict=True)
            about |= json.loads(event.model_dump_json())
        else:
            about |= {"type": "exception", "error": str(event), "code": event.code}
        print(json.dumps(about), flush=True)

    for kind in StreamingEvents:
        client.on(kind, show)
    client.connect(StreamingParameters(**job["options"]))
    data = Path(job["audio"]).read_bytes()
    pause_at = job.get("pause_at", 0)
    client.stream(data[at : min(at + FRAME, pause_at)] for at in range(0, pause_at, FRAME))
    for _ in range(job.get("keep_alive", 0)):
        time.sleep(0.5)
        client.keep_alive()
    if job.get("flush"):
        client.force_endpoint()
    client.stream(data[at : at + FRAME] for at in range(pause_at, len(data), FRAME))
    client.force_endpoint()
    client.disconnect(terminate=True)


def main(port: str, key: str, jobs: str) -> None:
    options = StreamingClientOptions(
        api_host=f"ws://127.0.0.1:{port}",
        api_key=key,
        connect_timeout=30,
        terminate_timeout=300,
        max_connection_retries=0,
    )
    for number, job in enumerate(json.loads(Path(jobs).read_text())):
        transcribe(options, number, job)


main(*sys.argv[1:])
