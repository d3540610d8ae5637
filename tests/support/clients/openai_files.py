# mypy: ignore-errors
"""OpenAI's own client: a transcription for each job, its text printed, one a line.

python openai_files.py PORT KEY JOBS     (a JSON file: [{"audio": path of a WAV file, "options": {…}}, …])
"""

import json
import sys
from pathlib import Path

import openai

port, key, jobs = sys.argv[1:]
client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0)
for number, job in enumerate(json.loads(Path(jobs).read_text())):
    file = ("speech.wav", Path(job["audio"]).read_bytes())
    about = {"job": number, "type": "text"}
    try:
        answer = client.audio.transcriptions.create(
            file=file, model="whisper-1", response_format="verbose_json", **job["options"]
        )
        about |= {"text": answer.text}
        type(answer).model_validate_json(answer.model_dump_json(warnings="error"), strict=True)
    except Exception as error:  # noqa: BLE001 - what it is, is told
        about |= {"type": "exception", "error": repr(error)}
    print(json.dumps(about), flush=True)
