# mypy: ignore-errors
"""WhisperLive's own client: a session for each job; what it has kept at the end is printed, one a line.

python whisperlive.py PORT KEY JOBS     (a JSON file: [{"audio": path of int16, "options": {…}}, …])
"""

import json
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

for name in ("pyaudio", "av", "scipy", "scipy.io", "scipy.io.wavfile"):  # for microphones and files
    sys.modules[name] = MagicMock()

import numpy as np  # noqa: E402
from loguru import logger  # noqa: E402
from whisper_live.client import Client  # noqa: E402

FRAME = 4096  # samples


def transcribe(port: str, number: int, audio: str, options: dict) -> None:
    told: list[str] = []  # what a server says is wrong stands in the client's log alone
    logger.add(told.append, level="ERROR")
    client = Client("127.0.0.1", int(port), log_transcription=False, **options)
    while not client.recording and client.ws_thread.is_alive():
        time.sleep(0.01)
    samples = np.frombuffer(Path(audio).read_bytes(), "<i2").astype(np.float32) / 32_768
    for at in range(0, len(samples), FRAME):
        client.send_packet_to_server(samples[at : at + FRAME].tobytes())
    client.send_packet_to_server(Client.END_OF_AUDIO.encode())
    client.ws_thread.join()
    about = {"type": "kept", "segments": client.transcript, "language": client.language}
    if client.server_error:
        about = {"type": "exception", "error": f"{client.error_message} {told}"}
    print(json.dumps({"job": number} | about), flush=True)


for number, job in enumerate(json.loads(Path(sys.argv[3]).read_text())):
    transcribe(sys.argv[1], number, **job)
