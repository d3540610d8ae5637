"""The APIs for recordings over real sockets; the recogniser alone is a script."""

import asyncio
import json
from typing import Any

import pytest

from daemon.server import Daemon
from streaming.protocol import Start
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.recordings import KINDS, encoded, video
from tests.support.wire import get, sentence, serving, talk, until

BOUNDARY = "x-boundary-x"


def form(file: bytes | None, *fields: tuple[str, str]) -> bytes:
    """A multipart form with `file` and the fields."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields
    ]
    if file is not None:
        head = (
            f"--{BOUNDARY}\r\nContent-Disposition: form-data; "
            'name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'
        )
        parts.insert(1, head.encode() + file + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


async def post(
    daemon: Daemon, path: str, body: bytes, *headers: str, kind: str | None = None
) -> tuple[int, str, bytes]:
    """Status, headers and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
    kind = kind or f"multipart/form-data; boundary={BOUNDARY}"
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), _dechunked(head, content)


def _dechunked(head: bytes, content: bytes) -> bytes:
    if b"transfer-encoding: chunked" not in head.lower():
        return content
    whole = b""
    while content:
        size, _, content = content.partition(b"\r\n")
        whole, content = whole + content[: int(size, 16)], content[int(size, 16) + 2 :]
    return whole


async def transcribe(daemon: Daemon, file: bytes, *fields: tuple[str, str]) -> Any:
    status, _, body = await post(
        daemon, "/v1/audio/transcriptions", form(file, ("model", "whisper-1"), *fields)
    )
    assert status == 200, body
    return json.loads(body)


async def error(daemon: Daemon, body: bytes, *headers: str) -> tuple[int, dict[str, Any]]:
    status, _, answer = await post(daemon, "/v1/audio/transcriptions", body, *headers)
    return status, json.loads(answer)["error"]


def wav() -> bytes:
    return encoded("wav")


async def test_a_recording_says_what_a_session_says() -> None:
    async with serving(ScriptedEngine()) as daemon:
        said = [final.text for final in await talk(daemon, Start(partials=False))]
        heard = await transcribe(daemon, encoded("flac"))
        raw = await post(
            daemon,
            "/v1/listen?encoding=linear16&sample_rate=16000",
            sentence(),
            kind="audio/raw",
        )
    assert heard == {"text": " ".join(said), "usage": {"type": "duration", "seconds": 4}}
    (channel,) = json.loads(raw[2])["results"]["channels"]
    assert channel["alternatives"][0]["transcript"] == " ".join(said)


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_the_container(kind: str) -> None:
    async with serving(ScriptedEngine(text=lambda _: "words")) as daemon:
        assert "words" in (await transcribe(daemon, encoded(kind)))["text"]


async def test_the_forms_of_the_answer() -> None:
    file = form(video(), ("model", "whisper-1"), ("response_format", "FORM"))
    async with serving(ScriptedEngine(text=lambda _: "Good morning.")) as daemon:
        answers = {
            kind: (
                await post(daemon, "/v1/audio/transcriptions", file.replace(b"FORM", kind.encode()))
            )[2].decode()
            for kind in ("text", "srt", "vtt", "verbose_json")
        }
    assert answers["text"].strip().startswith("Good morning.")
    assert answers["srt"].startswith("1\n00:00:00,")
    assert answers["vtt"].startswith("WEBVTT\n\n")
    verbose = json.loads(answers["verbose_json"])
    assert verbose["task"] == "transcribe"
    assert verbose["language"] == "english"
    assert 3.5 < verbose["duration"] < 4.5
    assert verbose["segments"][0]["text"] == " Good morning."
    assert "words" not in verbose


async def test_events_are_the_text_bit_by_bit() -> None:
    body = form(encoded("flac"), ("model", "base"), ("stream", "true")).replace(
        b"base", b"scripted"
    )
    async with serving(ScriptedEngine(text=lambda _: "Well, then.")) as daemon:
        _, head, answer = await post(daemon, "/v1/audio/transcriptions", body)
    assert "text/event-stream" in head
    events = [json.loads(line.removeprefix(b"data: ")) for line in answer.split(b"\n\n") if line]
    assert [event["type"] for event in events[:-1]] == ["transcript.text.delta"] * (len(events) - 1)
    assert events[-1]["type"] == "transcript.text.done"
    assert "".join(event["delta"] for event in events[:-1]) == events[-1]["text"]


async def test_translations_are_asked_for_as_such() -> None:
    engine = ScriptedEngine()
    async with serving(engine) as daemon:
        body = form(wav(), ("model", "whisper-1"), ("response_format", "verbose_json"))
        _, _, answer = await post(daemon, "/v1/audio/translations", body)
    assert {request.task for request in engine.admitted} == {"translate"}
    assert json.loads(answer)["language"] == "english"


async def test_wishes_reach_the_recogniser() -> None:
    engine = ScriptedEngine()
    async with serving(engine) as daemon:
        wishes = [("language", "de"), ("prompt", "Anna"), ("temperature", "0.5")]
        await transcribe(daemon, wav(), *wishes)
    (request, *_) = engine.admitted
    assert (request.language, request.prompt, request.temperature) == ("de", "Anna", 0.5)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (form(b"x" * 99, ("model", "whisper-1")), 400, "not audio or video"),
        (form(None, ("model", "whisper-1")), 400, "no field 'file'"),
        (form(wav()), 400, "model"),
        (form(wav(), ("model", "whisper-9")), 404, "whisper-9"),
        (form(wav(), ("model", "whisper-1"), ("language", "xx")), 400, "language"),
        (form(wav(), ("model", "whisper-1"), ("temperature", "7")), 400, "temperature"),
        (form(wav(), ("model", "whisper-1"), ("nonsense", "7")), 400, "nonsense"),
        (form(wav(), ("model", "whisper-1"))[:-20], 400, "in the middle"),
        (b"no form", 400, "no form"),
    ],
    ids=["noise", "no-file", "no-model", "model", "language", "value", "field", "cut", "no-form"],
)
async def test_what_is_wrong_is_told_in_openais_form(body: bytes, status: int, says: str) -> None:
    async with serving(ScriptedEngine()) as daemon:
        got, about = await error(daemon, body)
    assert got == status
    assert says in about["message"]
    assert about["type"] == "invalid_request_error"


async def test_too_large_and_too_long_are_413() -> None:
    async with serving(ScriptedEngine(), max_file_mb=0.05) as daemon:
        status, about = await error(daemon, form(wav(), ("model", "whisper-1")))
        assert (status, "larger" in about["message"]) == (413, True)
    async with serving(ScriptedEngine(), max_file_seconds=2.0) as daemon:
        status, about = await error(daemon, form(encoded("aac"), ("model", "whisper-1")))
        assert (status, "longer" in about["message"]) == (413, True)


async def test_a_client_that_announces_too_much_is_told_before_it_sends() -> None:
    async with serving(ScriptedEngine(), max_file_mb=0.01) as daemon:
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
        writer.write(
            b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 99999999\r\n\r\n"
        )
        assert b" 413 " in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()


async def test_keys_are_those_of_sessions(tmp_path: Any) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("me sesame-open-the-door\n")
    async with serving(ScriptedEngine(), tokens_file=str(tokens)) as daemon:
        body = form(wav(), ("model", "whisper-1"))
        status, about = await error(daemon, body)
        assert (status, about["code"]) == (401, "invalid_api_key")
        key = "Authorization: Bearer sesame-open-the-door"
        status, _, _ = await post(daemon, "/v1/audio/transcriptions", body, key)
        assert status == 200
        status, _, answer = await post(daemon, "/v1/listen", wav(), kind="audio/wav")
        assert (status, json.loads(answer)["err_code"]) == (401, "invalid_api_key")
        key = "Authorization: Token sesame-open-the-door"
        status, _, _ = await post(daemon, "/v1/listen", wav(), key, kind="audio/wav")
        assert status == 200
        assert (await get(daemon, "/v1/models"))[0] == 401


async def test_models_are_listed() -> None:
    async with serving(ScriptedEngine()) as daemon:
        status, _, body = await get(daemon, "/v1/models")
        assert status == 200
        assert [one["id"] for one in json.loads(body)["data"]][:2] == ["scripted", "whisper-1"]
        assert json.loads((await get(daemon, "/v1/models/scripted"))[2])["object"] == "model"
        status, _, body = await get(daemon, "/v1/models/other")
        assert (status, json.loads(body)["error"]["code"]) == (404, "model_not_found")


async def test_deepgrams_answer_has_words_and_utterances() -> None:
    async with serving(ScriptedEngine(text=lambda _: "Good morning.")) as daemon:
        path = "/v1/listen?model=nova-3&smart_format=true&utterances=true&detect_language=true"
        status, head, body = await post(daemon, path, encoded("ogg-opus"), kind="audio/ogg")
        assert status == 200
        answer = json.loads(body)
        assert answer["metadata"]["request_id"] in head
        assert answer["results"]["utterances"][0]["transcript"] == "Good morning."
        assert answer["results"]["channels"][0]["detected_language"] == "en"
        path = "/v1/listen?diarise=true"
        status, _, body = await post(daemon, path, wav(), kind="audio/wav")
        assert (status, json.loads(body)["err_code"]) == (400, "Bad Request")
        url = json.dumps({"url": "http://example.org/a.wav"}).encode()
        status, _, body = await post(daemon, "/v1/listen", url, kind="application/json")
        assert status == 400
        assert "fetches no URL" in json.loads(body)["err_msg"]


async def test_a_client_that_goes_takes_its_work_along() -> None:
    engine = ScriptedEngine()
    async with serving(engine) as daemon:
        engine.hold()
        body = form(encoded("flac"), ("model", "whisper-1"))
        requests = asyncio.create_task(post(daemon, "/v1/audio/transcriptions", body))
        await until(engine.entered.is_set)
        requests.cancel()
        with pytest.raises(asyncio.CancelledError):
            await requests
        await until(lambda: not daemon.listener.exchanges)
        engine.release()
        assert await talk(daemon)
        text = (await get(daemon, "/metrics"))[2]
    assert 'captiond_files_total{outcome="abandoned"} 1.0' in text
    assert "captiond_files_running 0.0" in text


async def test_files_wait_for_their_turn() -> None:
    engine = ScriptedEngine()
    async with serving(engine, max_files=1) as daemon:
        engine.hold()
        requests = [asyncio.create_task(transcribe(daemon, encoded("flac"))) for _ in range(3)]
        await until(engine.entered.is_set)
        await until(lambda: len(daemon.listener.exchanges) == 3)
        text = (await get(daemon, "/metrics"))[2]
        engine.release()
        answers = await asyncio.gather(*requests)
        after = (await get(daemon, "/metrics"))[2]
    assert "captiond_files_running 1.0" in text
    assert answers[0] == answers[1] == answers[2]
    assert 'captiond_files_total{outcome="done"} 3.0' in after
    assert "captiond_file_audio_seconds_total 12.0" in after


async def test_what_cannot_be_recognised_is_told() -> None:
    async with serving(ScriptedEngine(text=lambda _: "unspeakable")) as daemon:
        status, about = await error(daemon, form(wav(), ("model", "whisper-1")))
    assert status == 500
    assert about["type"] == "server_error"


async def test_nothing_is_taken_while_the_model_loads() -> None:
    engine = ScriptedEngine(warm=False)
    async with serving(engine, warm=False) as daemon:
        status, about = await error(daemon, form(wav(), ("model", "whisper-1")))
        assert status == 503
        assert "loading" in about["message"]
        assert (await get(daemon, "/v1/models"))[0] == 503
