# mypy: ignore-errors
"""WhisperLive's own client: streams float32 audio and prints what it has kept at the end.

python whisperlive.py PORT AUDIO(int16) LANGUAGE
"""

import json
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

for name in ("pyaudio", "av", "scipy", "scipy.io", "scipy.io.wavfile"):  # for microphones and files
    sys.modules[name] = MagicMock()

import numpy as np  # noqa: E402
from whisper_live.client import Client  # noqa: E402

FRAME = 4096  # samples


def main(port: str, audio: str, language: str) -> None:
    client = Client("127.0.0.1", int(port), lang=language or None, log_transcription=False)
    while not client.recording and client.ws_thread.is_alive():
        time.sleep(0.01)
    samples = np.frombuffer(Path(audio).read_bytes(), "<i2").astype(np.float32) / 32_768
    for at in range(0, len(samples), FRAME):
        client.send_packet_to_server(samples[at : at + FRAME].tobytes())
    client.send_packet_to_server(Client.END_OF_AUDIO.encode())
    client.ws_thread.join()
    about = {"transcript": client.transcript, "language": client.language}
    print(json.dumps(about | {"error": str(client.error_message or "")}))


main(*sys.argv[1:])
