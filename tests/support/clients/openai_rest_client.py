"""OpenAI's own client against a daemon: base URL, key and recording in; all that it makes of them as JSON."""

import json
import sys

import openai  # type: ignore[import-not-found]


def main(url: str, key: str, path: str) -> None:
    client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
    found = {}
    for form in ("json", "text", "srt", "vtt", "verbose_json"):
        with open(path, "rb") as file:  # noqa: PTH123 - as its users do
            answer = client.audio.transcriptions.create(
                file=file,
                model="whisper-1",
                response_format=form,
                timestamp_granularities=["word", "segment"]
                if form == "verbose_json"
                else openai.omit,
            )
        found[form] = answer if isinstance(answer, str) else answer.model_dump(warnings="error")
    with open(path, "rb") as file:  # noqa: PTH123
        stream = client.audio.transcriptions.create(
            file=file, model="gpt-4o-transcribe", stream=True
        )
        found["events"] = [event.model_dump(warnings="error") for event in stream]
    with open(path, "rb") as file:  # noqa: PTH123
        found["translation"] = client.audio.translations.create(file=file, model="whisper-1").text
    found["models"] = [model.id for model in client.models.list()]
    errors = found["errors"] = {}
    for name, wrong, options in (
        ("key", openai.OpenAI(base_url=url, api_key="not-the-right-one", max_retries=0), {}),
        ("model", client, {"model": "no-such"}),
        ("language", client, {"language": "klingon"}),
        ("sound", client, {"file": ("a.wav", b"no sound at all")}),
    ):
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                wrong.audio.transcriptions.create(**{"file": file, "model": "whisper-1", **options})
        except openai.APIStatusError as error:
            errors[name] = [type(error).__name__, error.status_code, error.message]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
