"""Deepgram's own client against a daemon: base URL, key and recording in; what it makes of them as JSON."""

import json
import sys
from typing import Any

from deepgram import DeepgramClient  # type: ignore[import-not-found]
from deepgram.core.api_error import ApiError  # type: ignore[import-not-found]
from deepgram.environment import DeepgramClientEnvironment  # type: ignore[import-not-found]


def main(url: str, key: str, path: str) -> None:
    place = DeepgramClientEnvironment(base=url, production=url, agent=url, agent_rest=url)

    def ask(key: str, **options: object) -> Any:
        with open(path, "rb") as file:  # noqa: PTH123 - as its users do
            return DeepgramClient(api_key=key, environment=place).listen.v1.media.transcribe_file(
                request=file.read(), **options
            )

    answer = ask(key, model="nova-3", smart_format=True, utterances=True, keyterm=["Anna"])
    found: dict[str, Any] = {"answer": json.loads(answer.json()), "errors": {}}
    for name, other, options in (
        ("key", "not-the-right-one", {}),
        ("option", key, {"redact": "pci"}),
    ):
        try:
            ask(other, **options)
        except ApiError as error:
            found["errors"][name] = [error.status_code, error.body]
    sys.stdout.write(json.dumps(found, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
