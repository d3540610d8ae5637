# mypy: ignore-errors
"""Deepgram's own client: a transcription for each job, its text printed, one a line.

python deepgram_files.py PORT KEY JOBS     (a JSON file: [{"audio": path of a WAV file, "options": {…}}, …])
"""

import json
import sys
from pathlib import Path

from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment

port, key, jobs = sys.argv[1:]
names = ("base", "production", "agent", "agent_rest")
environment = DeepgramClientEnvironment(**dict.fromkeys(names, f"http://127.0.0.1:{port}"))
client = DeepgramClient(api_key=key, environment=environment)
for number, job in enumerate(json.loads(Path(jobs).read_text())):
    about = {"job": number, "type": "text"}
    try:
        answer = client.listen.v1.media.transcribe_file(
            request=Path(job["audio"]).read_bytes(), model="nova-3", **job["options"]
        )
        about |= {"text": answer.results.channels[0].alternatives[0].transcript}
    except Exception as error:  # noqa: BLE001 - what it is, is told
        about |= {"type": "exception", "error": repr(error)}
        about["error"] += str(getattr(error, "status_code", ""))
    print(json.dumps(about), flush=True)
