import errno
import json
import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config import ConfigError
from daemon.monitoring.metrics import total
from daemon.sessions.transcripts import Transcript, Transcripts, cut_incomplete_piece, parts
from streaming.protocol import Start
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.standin import closed, final
from tests.support.wire import calling, sentence, serving, talk, until


def home(folder: Path, file_mb: float = 10.0, keep_mb: float = 1000.0) -> Transcripts:
    return Transcripts(str(folder), file_mb, keep_mb, failed=lambda: None)


def opened(transcripts: Transcripts, session: str = "0123abcd") -> Transcript:
    return transcripts.open(session, {"model": "base"})


def caught_up(transcripts: Transcripts) -> None:
    """Wait until the thread has done what it was given."""
    done = threading.Event()
    transcripts.submit_anyway(done.set)
    assert done.wait(PATIENCE)


def files(folder: Path) -> dict[str, str]:
    """By what follows the session's name."""
    return {
        path.name.partition("0123abcd")[2]: path.read_text(encoding="utf-8")
        for path in sorted(folder.iterdir())
    }


def test_a_session_is_written_in_three_forms(tmp_path: Path) -> None:
    transcripts = home(tmp_path / "new" / "folder")
    one = opened(transcripts)
    one.final(final("Good morning.", 0.5, 1.5))
    one.final(final("", 2.0, 3.0, utterance=1))
    one.close(closed(48_000))
    transcripts.stop()
    written = files(tmp_path / "new" / "folder")
    lines = [json.loads(line) for line in written[".jsonl"].splitlines()]
    assert [line["type"] for line in lines] == ["session", "final", "final", "closed"]
    assert (lines[0]["session"], lines[0]["model"]) == ("0123abcd", "base")
    assert written[".srt"] == "1\n00:00:00,500 --> 00:00:01,500\nGood morning.\n\n"
    assert written[".vtt"] == "WEBVTT\n\n1\n00:00:00.500 --> 00:00:01.500\nGood morning.\n\n"


def test_a_long_transcript_goes_on_in_another_part(tmp_path: Path) -> None:
    transcripts = home(tmp_path, file_mb=0.001)
    one = opened(transcripts)
    for number in range(20):
        one.final(final(f"word {number}", number, number + 1, utterance=number))
    one.close(closed())
    transcripts.stop()
    written = files(tmp_path)
    parts = [name for name in written if name.endswith(".jsonl")]
    assert len(parts) > 2
    texts = [
        json.loads(line)["text"]
        for name in sorted(parts, key=lambda name: int(name.strip(".jsonl") or 1))
        for line in written[name].splitlines()
        if '"final"' in line
    ]
    assert texts == [f"word {number}" for number in range(20)]
    assert all(text.startswith("WEBVTT") for name, text in written.items() if name.endswith("vtt"))


def test_the_oldest_go_when_the_folder_is_full(tmp_path: Path) -> None:
    """But none that is being written, and nothing that is not ours."""
    (tmp_path / "2020-01-01T000000Z-00000000.jsonl").write_bytes(bytes(2 * 2**20))
    (tmp_path / "2020-01-02T000000Z-00000000.srt").write_bytes(b"\n\n")
    (tmp_path / "notes.txt").write_bytes(bytes(2 * 2**20))
    transcripts = home(tmp_path, keep_mb=1.0)
    one = opened(transcripts)
    one.close(None)
    transcripts.stop()
    names = {path.name for path in tmp_path.iterdir()}
    assert "2020-01-01T000000Z-00000000.jsonl" not in names
    assert {"2020-01-02T000000Z-00000000.srt", "notes.txt"} <= names
    assert len(names) == 5


OLD, NEXT, YOUNG = (f"2020-01-0{day}T000000Z-00000000.jsonl" for day in (1, 2, 3))


def write_one(folder: Path, transcripts: Transcripts) -> None:
    """A short transcript, which the thread has written when this returns."""
    one = opened(transcripts)
    one.final(final("kept"))
    one.close(closed())
    transcripts.stop()
    assert "kept" in files(folder)[".srt"]
    assert '"closed"' in files(folder)[".jsonl"]


def test_a_file_that_cannot_be_removed_costs_no_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (OLD, NEXT):
        (tmp_path / name).write_bytes(b"\n" * 2**21)
    original = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name == OLD:
            raise PermissionError(errno.EACCES, "Permission denied")
        original(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    failures = list[int]()
    write_one(tmp_path, Transcripts(str(tmp_path), 10.0, 3.0, lambda: failures.append(1)))
    assert (tmp_path / OLD).exists()
    assert not (tmp_path / NEXT).exists()
    assert not failures
    assert f"{OLD} should go, and cannot be removed" in caplog.text


def test_a_file_now_gone_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others tidy up, too: before it is looked at, and before it is removed. No other has to go."""
    (tmp_path / NEXT).write_bytes(b"\n" * 2**21)
    (tmp_path / YOUNG).write_bytes(b"\n" * 2**10)
    failures = list[int]()
    transcripts = Transcripts(str(tmp_path), 10.0, 1.0, lambda: failures.append(1))
    original = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        original(path)
        original(path, missing_ok=missing_ok)

    monkeypatch.setattr(
        "daemon.sessions.transcripts.parts", lambda folder: [folder / OLD, *parts(folder)]
    )
    monkeypatch.setattr(Path, "unlink", unlink)
    write_one(tmp_path, transcripts)
    assert not (tmp_path / NEXT).exists()
    assert (tmp_path / YOUNG).exists()
    assert not failures


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """What lets a disk go on that hangs; three pieces are remembered for it."""
    monkeypatch.setattr("daemon.sessions.transcripts.MOST_PENDING", 3)
    return threading.Event()


def test_for_a_disk_that_hangs_no_more_is_remembered_than_fits(
    tmp_path: Path, hanging: threading.Event
) -> None:
    """The rest is counted, and nobody waits; what comes once it goes on is written."""
    failures = list[int]()
    transcripts = Transcripts(str(tmp_path), 10.0, 1000.0, lambda: failures.append(1))
    one = opened(transcripts)
    caught_up(transcripts)
    transcripts.submit(lambda: hanging.wait(PATIENCE))
    for number in range(5):
        one.final(final(f"word {number}", utterance=number))
    assert len(failures) == 3
    hanging.set()
    caught_up(transcripts)
    one.final(final("word 5", utterance=5))
    one.close(closed())
    transcripts.stop()
    lines = [json.loads(line) for line in files(tmp_path)[".jsonl"].splitlines()]
    assert [line.get("text", "") for line in lines] == ["", "word 0", "word 1", "word 5", ""]
    assert lines[-1]["type"] == "closed"
    assert len(failures) == 3


def test_what_ends_while_the_disk_hangs_is_closed(tmp_path: Path, hanging: threading.Event) -> None:
    """It would hold descriptors, and never be old enough to go."""
    transcripts = home(tmp_path)
    one = opened(transcripts)
    caught_up(transcripts)
    assert transcripts.writing
    transcripts.submit(lambda: hanging.wait(PATIENCE))
    for number in range(5):
        one.final(final(f"word {number}", utterance=number))
    one.close(closed())
    hanging.set()
    transcripts.stop()
    assert not transcripts.writing


def half_written(monkeypatch: pytest.MonkeyPatch, fails: Callable[[], bool]) -> None:
    """Like a full disk: the beginning of a piece is written, then there is no room."""
    original = os.write

    def write(file: int, data: bytes) -> int:
        if not fails() or os.fstat(file).st_size == 0:
            return original(file, data)
        if len(data) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(file, data[: len(data) // 2])

    monkeypatch.setattr("os.write", write)


def test_a_full_disk_costs_no_final_once_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full, failures = False, list[int]()
    transcripts = Transcripts(str(tmp_path), 10.0, 1000.0, failed=lambda: failures.append(1))
    half_written(monkeypatch, lambda: full)
    one = opened(transcripts)
    one.final(final("one"))
    caught_up(transcripts)
    full = True
    with caplog.at_level(logging.INFO):
        one.final(final("two", utterance=1))
        one.final(final("three", utterance=2))
        caught_up(transcripts)
        lines = files(tmp_path)[".jsonl"].splitlines()
        assert [json.loads(line)["type"] for line in lines] == ["session", "final"]
        full = False
        one.close(closed())
        transcripts.stop()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert len(failures) == 2
    assert all(text in files(tmp_path)[".srt"] for text in ("one", "two", "three"))
    lines = files(tmp_path)[".jsonl"].splitlines()
    assert [json.loads(line)["type"] for line in lines][-4:] == ["final"] * 3 + ["closed"]


@given(pieces=st.lists(st.text(max_size=30), max_size=5), torn=st.text(min_size=1, max_size=30))
def test_what_a_crash_left_of_a_piece_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], torn: str
) -> None:
    path = tmp_path_factory.mktemp("crash") / "x.jsonl"
    whole = "".join(json.dumps(piece) + "\n" for piece in pieces).encode()
    path.write_bytes(whole + json.dumps(torn).encode())
    cut_incomplete_piece(path)
    assert path.read_bytes() == whole
    cut_incomplete_piece(path)
    assert path.read_bytes() == whole


def test_a_start_repairs_what_is_there(tmp_path: Path) -> None:
    torn = tmp_path / "2020-01-01T000000Z-00000000.srt"
    torn.write_text("1\n00:00 --> 00:01\nwhole\n\n2\n00:01 -->")
    home(tmp_path).stop()
    assert torn.read_text() == "1\n00:00 --> 00:01\nwhole\n\n"


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="transcripts cannot be written to"):
        home(tmp_path / "file")


async def test_subtitles_on_disk_follow_the_words(tmp_path: Path) -> None:
    """Of a client, too, that asked for none: it is told none."""
    engine = ScriptedEngine(text=lambda _: "One. Two.")
    async with serving(engine, transcripts_dir=str(tmp_path)) as daemon:
        finals = await talk(daemon)
        await until(lambda: not len(daemon.sessions))
    assert {final.words for final in finals} == {None}
    assert cue_starts(tmp_path) == pytest.approx([one.start + 0.3 for one in finals], abs=0.001)
    said = [line["words"] for line in only_transcript(tmp_path) if line["type"] == "final"]
    assert [word["text"] for word in said[0]] == ["One.", "Two."]


def cue_starts(folder: Path) -> list[float]:
    """In seconds, of the only transcript in `folder`."""
    (path,) = folder.glob("*.srt")
    clocks = re.findall(r"(\d+):(\d+):(\d+),(\d+) -->", path.read_text())
    return [3600 * int(h) + 60 * int(m) + int(s) + int(ms) / 1000 for h, m, s, ms in clocks]


def only_transcript(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_the_daemon_writes_what_it_says(tmp_path: Path) -> None:
    async with serving(ScriptedEngine(), transcripts_dir=str(tmp_path)) as daemon:
        async with calling(daemon) as client:
            await client.say(Start(partials=False), sentence())
            await until(lambda: round(total(daemon.metrics.audio) * 32_000) == len(sentence()))
            client.socket.transport.abort()
        await until(lambda: not len(daemon.sessions))
    lines = only_transcript(tmp_path)
    assert lines[-1]["type"] == "closed"
    assert lines[-1]["finals"] == sum(line["type"] == "final" for line in lines) > 1
