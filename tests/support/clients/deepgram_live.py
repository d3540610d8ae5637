# mypy: ignore-errors
"""Deepgram's own client: a stream for each job, every message that it got printed, one a line.

python deepgram_live.py PORT KEY JOBS     (a JSON file: [{"audio": path, "options": {…}}, …])
"""

import json
import sys
import threading
import time
from pathlib import Path

from deepgram import DeepgramClient
from deepgram.core.events import EventType
from deepgram.environment import DeepgramClientEnvironment

FRAME = 16_000  # bytes


def transcribe(
    client: DeepgramClient,
    number: int,
    audio: str,
    options: dict,
    pause_at: int = 0,
    flush: bool = False,
    keep_alive: int = 0,
) -> None:
    data = Path(audio).read_bytes()

    def show(message: object) -> None:
        kind = type(message)
        kind.model_validate(json.loads(message.json()), strict=True)
        about = {"job": number, "class": kind.__name__}
        print(json.dumps(about | json.loads(message.json())), flush=True)

    with client.listen.v1.connect(**options) as connection:
        connection.on(EventType.MESSAGE, show)
        connection.on(EventType.ERROR, lambda error: print(json.dumps({"error": str(error)})))

        def send(audio: bytes) -> None:
            for first in range(0, len(audio), FRAME):
                connection.send_media(audio[first : first + FRAME])

        listener = threading.Thread(target=connection.start_listening)
        listener.start()
        send(data[:pause_at])
        for _ in range(keep_alive):
            time.sleep(0.5)
            connection.send_keep_alive()
        if flush:
            connection.send_finalize()
        send(data[pause_at:])
        connection.send_finalize()
        connection.send_close_stream()
        listener.join()


def main(port: str, key: str, jobs: str) -> None:
    url = f"ws://127.0.0.1:{port}"
    names = ("base", "production", "agent", "agent_rest")
    environment = DeepgramClientEnvironment(**dict.fromkeys(names, url))
    client = DeepgramClient(api_key=key, environment=environment)
    for number, job in enumerate(json.loads(Path(jobs).read_text())):
        try:
            transcribe(client, number, **job)
        except Exception as error:  # noqa: BLE001 - what it is, is told
            print(json.dumps({"job": number, "type": "exception", "error": repr(error)}))


main(*sys.argv[1:])
