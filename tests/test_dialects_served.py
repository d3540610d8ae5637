"""Foreign protocols over real sockets: where they are spoken, who may come, and how they end."""

import asyncio
import json
import logging
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from daemon.server import Daemon
from streaming.dialects.whisperlive import END_OF_AUDIO
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.wire import frames, free_port, get, sentence, serving, speech, talk, until

KEY = "a-key-of-some-length"
DEEPGRAM = "/v1/listen?encoding=linear16&sample_rate=16000&language=en"
ASSEMBLYAI = "/v3/ws?sample_rate=16000&language_code=en"
REALTIME = "/v1/realtime?intent=transcription"

Messages = list[dict[str, Any]]


def dial(daemon: Daemon, path: str, port: int | None = None, **options: Any) -> connect:
    return connect(f"ws://127.0.0.1:{port or daemon.port}{path}", **options)


async def hear(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        message: dict[str, Any] = json.loads(await socket.recv())
    return message


async def hear_all(socket: ClientConnection) -> Messages:
    """Everything until the daemon closes."""
    messages = []
    try:
        while True:
            messages.append(await hear(socket))
    except ConnectionClosed:
        return messages


async def deepgram(daemon: Daemon, audio: bytes) -> list[str]:
    """A whole session of Deepgram's; its finals."""
    async with dial(daemon, DEEPGRAM) as socket:
        for frame in frames(audio):
            await socket.send(frame)
        await socket.send('{"type": "CloseStream"}')
        messages = await hear_all(socket)
        assert socket.close_code == 1000
    assert messages[-1]["type"] == "Metadata"
    return [one["channel"]["alternatives"][0]["transcript"] for one in messages[:-1]]


async def whisperlive(daemon: Daemon, port: int, audio: bytes) -> list[str]:
    """The same in WhisperLive's."""
    async with dial(daemon, "/", port) as socket:
        about = {"uid": "u", "language": "en", "task": "transcribe", "audio_format": "int16"}
        await socket.send(json.dumps(about))
        for frame in [*frames(audio), END_OF_AUDIO]:
            await socket.send(frame)
        messages = await hear_all(socket)
        assert socket.close_code == 1000
    last = [one for one in messages if "segments" in one][-1]["segments"]
    return [segment["text"].strip() for segment in last]


async def vosk(daemon: Daemon, port: int, audio: bytes) -> list[str]:
    """The same in Vosk's, in lock-step."""
    async with dial(daemon, "/anything", port) as socket:
        await socket.send('{"config" : {"sample_rate" : 16000}}')
        answers = []
        sent: list[str | bytes] = [*frames(audio), '{"eof" : 1}']
        for frame in sent:
            await socket.send(frame)
            answers.append(await hear(socket))
        assert not await hear_all(socket)
    return [one["text"] for one in answers if one.get("text")]


async def test_several_protocols_at_once_say_the_same() -> None:
    """Each beside the others, and captiond's own beside all."""
    ports: dict[str, Any] = {"whisperlive_port": free_port(), "vosk_port": free_port()}
    async with serving(ScriptedEngine(), **ports) as daemon:
        own, first, second, third, fourth = await asyncio.gather(
            talk(daemon),
            deepgram(daemon, sentence()),
            deepgram(daemon, sentence()),
            whisperlive(daemon, ports["whisperlive_port"], sentence()),
            vosk(daemon, ports["vosk_port"], sentence()),
        )
        text = (await get(daemon, "/metrics"))[2]
    said = [final.text for final in own]
    assert first == second == third == said
    assert " ".join(fourth) == " ".join(said)
    for name, count in {"captiond": 1, "deepgram": 2, "whisperlive": 1, "vosk": 1}.items():
        assert f'captiond_dialect_sessions_total{{dialect="{name}"}} {count}.0' in text
        assert f'captiond_dialect_finals_total{{dialect="{name}"}} {count * len(said)}.0' in text


async def test_ten_vosk_clients_at_once() -> None:
    port = free_port()
    async with serving(ScriptedEngine(), vosk_port=port) as daemon:
        said = await asyncio.gather(*(vosk(daemon, port, sentence()) for _ in range(10)))
    assert len({" ".join(texts) for texts in said}) == 1


WAYS: list[tuple[str, dict[str, Any]]] = [
    (DEEPGRAM, {"additional_headers": {"Authorization": f"Token {KEY}"}}),
    (DEEPGRAM, {"subprotocols": [Subprotocol("token"), Subprotocol(KEY)]}),
    (ASSEMBLYAI, {"additional_headers": {"Authorization": KEY}}),
    (f"{ASSEMBLYAI}&token={KEY}", {}),
    (REALTIME, {"additional_headers": {"Authorization": f"Bearer {KEY}"}}),
    (
        REALTIME,
        {"subprotocols": [Subprotocol("realtime"), Subprotocol(f"openai-insecure-api-key.{KEY}")]},
    ),
    (f"/whisperlive?token={KEY}", {}),
]


@pytest.mark.parametrize(("path", "options"), WAYS)
async def test_each_protocol_brings_its_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str, options: dict[str, Any]
) -> None:
    """In its own way; the key stands in no log, not even in that of every frame."""
    caplog.set_level(logging.DEBUG)
    logging.getLogger("websockets.client").setLevel(logging.WARNING)  # the client is not ours
    (tmp_path / "tokens").write_text(f"alice {KEY}\n")
    async with serving(ScriptedEngine(), tokens_file=str(tmp_path / "tokens")) as daemon:
        async with dial(daemon, path, **options) as socket:
            assert socket.subprotocol == next(iter(options.get("subprotocols", [None])))
            await until(lambda: len(daemon.admission.admitted) == 1)
        with pytest.raises(InvalidStatus) as refusal:
            await dial(daemon, path.replace(KEY, f"{KEY}-wrong"))
        assert refusal.value.response.status_code == 401
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (f"{DEEPGRAM}&tempo=fast", "no field `tempo`"),
        (f"{DEEPGRAM}&encoding=speex", "`encoding`"),
        ("/v3/ws?sample_rate=no", "`sample_rate`"),
    ],
)
async def test_a_wrong_option_is_refused_before_there_is_a_websocket(path: str, says: str) -> None:
    async with serving(ScriptedEngine()) as daemon:
        with pytest.raises(InvalidStatus) as refusal:
            await dial(daemon, path)
        assert refusal.value.response.status_code == 400
        assert says in (refusal.value.response.body or b"").decode()


async def test_a_refusal_has_the_form_of_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"alice {KEY}\n")
    async with serving(ScriptedEngine(), tokens_file=str(tmp_path / "tokens")) as daemon:
        bodies = []
        for path in (REALTIME, DEEPGRAM, "/v3/ws"):
            with pytest.raises(InvalidStatus) as refusal:
                await dial(daemon, path)
            bodies.append((refusal.value.response.body or b"").decode())
    assert json.loads(bodies[0])["error"]["type"] == "invalid_request_error"
    assert set(json.loads(bodies[1])) == {"err_code", "err_msg", "request_id"}
    assert "wants a token" in bodies[2]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/v1/listen?language=xx", "Error"), ("/v3/ws?language_code=xx", "Error")],
)
async def test_a_language_that_the_model_lacks_ends_the_session(path: str, kind: str) -> None:
    async with serving(ScriptedEngine()) as daemon, dial(daemon, path) as socket:
        messages = await hear_all(socket)
        assert messages[0]["type"] == kind
        assert "language" in json.dumps(messages[0])
        assert socket.close_code == 1008


async def test_a_client_of_openai_corrects_its_language() -> None:
    """What the model lacks is an event; the connection goes on."""
    async with serving(ScriptedEngine()) as daemon, dial(daemon, REALTIME) as socket:
        assert (await hear(socket))["type"] == "session.created"
        for language, answer in (("xx", "error"), ("de", "session.updated")):
            heard = {"transcription": {"language": language}}
            session = {"type": "transcription", "audio": {"input": heard}}
            await socket.send(json.dumps({"type": "session.update", "session": session}))
            assert (await hear(socket))["type"] == answer


async def test_a_client_of_openai_is_served_from_another_port_alone() -> None:
    """Audio as base64; a commit ends what is spoken."""
    async with serving(ScriptedEngine()) as daemon, dial(daemon, REALTIME) as socket:
        for frame in frames(speech()[: 3 * 48_000], 48_000):
            audio = b64encode(frame).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        await socket.send('{"type": "input_audio_buffer.commit"}')
        kinds: list[str] = []
        while not kinds or not kinds[-1].endswith("completed"):
            kinds.append((await hear(socket))["type"])
    assert kinds[:2] == ["session.created", "input_audio_buffer.speech_started"]


async def test_sudden_ends_leave_nothing_behind() -> None:
    """`serving` sees to that; and the neighbour's captions are whole."""
    engine = ScriptedEngine()
    async with serving(engine) as daemon:
        neighbour = asyncio.create_task(talk(daemon))
        for path in (DEEPGRAM, ASSEMBLYAI, REALTIME, "/whisperlive", "/vosk"):
            async with dial(daemon, path) as socket:
                await socket.send(sentence()[:32_000])
                socket.transport.abort()
        assert [final.text for final in await neighbour]


async def test_who_sends_nonsense_is_sent_away() -> None:
    """Ten mistakes are too many; for protocols without words for them one is."""
    async with serving(ScriptedEngine()) as daemon:
        for path, code in (
            (REALTIME, 1008),
            (DEEPGRAM, 1008),
            ("/vosk", 1008),
            ("/whisperlive", 1008),
        ):
            async with dial(daemon, path) as socket:
                for _ in range(10):
                    try:
                        await socket.send("nonsense")
                    except ConnectionClosed:
                        break
                await hear_all(socket)
                assert socket.close_code == code, path


async def test_an_idle_client_is_told_in_its_own_words() -> None:
    async with (
        serving(ScriptedEngine(), idle_seconds=0.2) as daemon,
        dial(daemon, DEEPGRAM) as socket,
    ):
        messages = await hear_all(socket)
        assert [one["type"] for one in messages] == ["Error", "Metadata"]
        assert (socket.close_code, socket.close_reason) == (1011, "NET-0001")


async def test_a_plain_request_is_pointed_to_the_websocket() -> None:
    async with serving(ScriptedEngine()) as daemon:
        status, _, body = await get(daemon, "/v1/listen")
    assert status == 426
    assert "Deepgram" in body


async def test_whisperlives_clients_are_told_to_wait_where_there_is_no_room() -> None:
    """In the protocol's own words, once it has said who it is; that takes nobody's place."""
    about = {"uid": "u", "language": "en", "task": "transcribe", "audio_format": "int16"}
    async with serving(ScriptedEngine(), max_sessions=1) as daemon:
        async with dial(daemon, "/whisperlive") as first:
            await first.send(json.dumps(about))
            assert (await hear(first))["message"] == "SERVER_READY"
            async with dial(daemon, "/whisperlive") as second:
                await second.send(json.dumps(about | {"uid": "v"}))
                wanted = {"uid": "v", "status": "WAIT", "message": 1.0}
                assert await hear_all(second) == [wanted]
                assert second.close_code == 1013
            with pytest.raises(InvalidStatus):
                async with dial(daemon, DEEPGRAM):
                    pass
            third = await dial(daemon, "/whisperlive")
            await first.send(END_OF_AUDIO)
            await hear_all(first)
        await until(lambda: not daemon.admission.taken)
        await third.send(json.dumps(about))  # by now there is room
        assert (await hear(third))["message"] == "SERVER_READY"
        await third.send(END_OF_AUDIO)
        await hear_all(third)
        assert daemon.metrics.counts()["refused"] == 2
