# mypy: ignore-errors
"""AssemblyAI's own client: streams raw PCM and prints every event that it got, one a line.

python assemblyai_v3.py PORT KEY AUDIO PARAMETERS(JSON) [--force]
"""

import json
import sys
from pathlib import Path

from assemblyai.streaming.v3 import (
    StreamingClient,
    StreamingClientOptions,
    StreamingEvents,
    StreamingParameters,
)

FRAME = 3_200  # bytes: the service takes 50 to 1000 ms


def main(port: str, key: str, audio: str, parameters: str) -> None:
    options = StreamingClientOptions(
        api_host=f"ws://127.0.0.1:{port}",
        api_key=key,
        connect_timeout=30,
        terminate_timeout=300,
        max_connection_retries=0,
    )
    client = StreamingClient(options)

    def show(_client: object, event: object) -> None:
        said = json.loads(event.model_dump_json()) if hasattr(event, "model_dump_json") else {}
        said = said or {"error": str(event), "code": getattr(event, "code", None)}
        print(json.dumps({"class": type(event).__name__, **said}), flush=True)

    for kind in StreamingEvents:
        client.on(kind, show)
    client.connect(StreamingParameters(**json.loads(parameters)))
    data = Path(audio).read_bytes()
    client.stream(data[at : at + FRAME] for at in range(0, len(data), FRAME))
    if "--force" in sys.argv:
        client.force_endpoint()
    client.disconnect(terminate=True)


main(*[one for one in sys.argv[1:] if not one.startswith("--")])
