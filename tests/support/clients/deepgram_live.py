# mypy: ignore-errors
"""Deepgram's own client: streams raw PCM and prints every message that it got, one a line.

python deepgram_live.py PORT KEY AUDIO OPTIONS(JSON)
"""

import json
import sys
import threading
from pathlib import Path

from deepgram import DeepgramClient
from deepgram.core.events import EventType
from deepgram.environment import DeepgramClientEnvironment

FRAME = 16_000  # bytes


def main(port: str, key: str, audio: str, options: str) -> None:
    url = f"ws://127.0.0.1:{port}"
    names = ("base", "production", "agent", "agent_rest")
    environment = DeepgramClientEnvironment(**dict.fromkeys(names, url))
    client = DeepgramClient(api_key=key, environment=environment)
    data = Path(audio).read_bytes()

    def show(message: object) -> None:
        print(
            json.dumps({"class": type(message).__name__, **json.loads(message.json())}), flush=True
        )

    with client.listen.v1.connect(**json.loads(options)) as connection:
        connection.on(EventType.MESSAGE, show)
        connection.on(EventType.ERROR, lambda error: print(json.dumps({"error": str(error)})))
        listener = threading.Thread(target=connection.start_listening)
        listener.start()
        connection.send_keep_alive()
        half = len(data) // 2 // FRAME * FRAME
        for first in range(0, len(data), FRAME):
            connection.send_media(data[first : first + FRAME])
            if first == half and "--finalize" in sys.argv:
                connection.send_finalize()
        connection.send_close_stream()
        listener.join()


main(*[one for one in sys.argv[1:] if not one.startswith("--")])
