"""`captiond file` as a user runs it: real files, real pipes, a scripted daemon over real sockets."""

import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from clients import file
from streaming.protocol import (
    SAMPLE_BYTES,
    Closed,
    Final,
    Partial,
    Ready,
    Start,
    Stop,
    decode_server,
)
from tests.support.file_verb import RATE, Capture, caption, piped, tone, wav
from tests.support.recordings import video
from tests.support.standin import Peer, answering, closed, final, partial, standin_thread
from tests.support.terminal import terminal_of


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.aiff"])
def test_sixteen_bit_files_arrive_bit_for_bit(name: str, tmp_path: Path, capsys: Capture) -> None:
    path = wav(tmp_path / name, seconds=1.23, channels=2)
    with standin_thread() as server:
        assert caption(server, path) == 0
    (peer,) = server.peers
    assert peer.start == Start(rate=RATE, channels=2, partials=False)
    assert peer.audio == tone(1.23, channels=2).tobytes()
    assert capsys.readouterr() == ("one\n", "")


def test_a_videos_sound_is_captioned(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(video())
    with standin_thread() as server:
        assert caption(server, path) == 0
    (peer,) = server.peers
    assert abs(len(peer.audio) / (RATE * SAMPLE_BYTES["f32le"]) - 4.0) < 0.3


def test_a_damaged_video_is_told(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(video()[:3_000])
    with standin_thread() as server:
        assert caption(server, path) == 1
    assert "film.mp4: " in capsys.readouterr().err


@pytest.mark.parametrize("subtype", ["PCM_24", "FLOAT", "DOUBLE"])
def test_finer_files_are_sent_as_floats(subtype: str, tmp_path: Path) -> None:
    samples = np.linspace(-0.9, 0.9, 5000)
    soundfile.write(tmp_path / "a.wav", samples, 44_100, subtype=subtype)
    with standin_thread() as server:
        assert caption(server, tmp_path / "a.wav") == 0
    (peer,) = server.peers
    assert (peer.start.encoding, peer.start.rate) == ("f32le", 44_100)
    assert np.frombuffer(peer.audio, "<f4") == pytest.approx(samples, abs=1e-6)


def test_audio_is_streamed_in_blocks(tmp_path: Path) -> None:
    """A tenth of a second each: a long file is never held whole."""
    with standin_thread() as server:
        caption(server, wav(tmp_path / "a.wav", seconds=1.05))
    assert [len(frame) for frame in server.peers[0].frames] == [3200] * 10 + [1600]


def test_files_follow_each_other_and_bad_ones_stop_none(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "notes.wav").write_text("not audio at all")
    (tmp_path / "samples.raw").write_bytes(bytes(100))
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), RATE)
    good = [wav(tmp_path / "1.wav"), wav(tmp_path / "2.wav")]
    bad = ["missing.wav", "notes.wav", "empty.wav", "samples.raw", "."]
    with standin_thread() as server:
        assert caption(server, good[0], *(tmp_path / name for name in bad), good[1]) == 1
    out, err = capsys.readouterr()
    assert out == "one\none\n"
    errors = err.splitlines()
    assert len(errors) == len(bad)
    for complaint, reason in zip(
        errors,
        [
            "missing.wav: no such file",
            "notes.wav: not audio",
            "empty.wav: holds no audio",
            "samples.raw: raw audio has no header",
            ": is a folder",
        ],
        strict=True,
    ):
        assert complaint.startswith("captiond file: ")
        assert reason in complaint


def test_bad_files_are_told_before_the_first_has_its_turn(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody finds out after an hour of captions that a name was mistyped."""
    told: list[str] = []

    async def caption_audio(audio: file.Audio, *_: object) -> None:
        told.append(capsys.readouterr().err)

    monkeypatch.setattr(file, "_caption_audio", caption_audio)
    with standin_thread() as server:
        assert caption(server, wav(tmp_path / "1.wav"), tmp_path / "missing.wav") == 1
    assert len(told) == 1
    assert "missing.wav: no such file" in told[0]


def test_a_damaged_file_is_captioned_up_to_the_damage(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.flac"
    noise = np.random.default_rng(0).normal(size=(5 * RATE, 1)) * 0.1
    soundfile.write(path, noise, RATE, subtype="PCM_16")
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
    path.write_bytes(data)
    with standin_thread() as server:
        assert caption(server, path) == 1
    out, err = capsys.readouterr()
    assert out == "one\n"
    assert "damaged" in err
    assert 0 < len(server.peers[0].audio) < 2 * 5 * RATE


def test_without_a_daemon_the_verb_gives_up_at_once(tmp_path: Path, capsys: Capture) -> None:
    """One message for all files, and it says what to start."""
    path = wav(tmp_path / "a.wav")
    assert caption("ws://127.0.0.1:1", path, path) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("captiond serve") == 1


async def talkative(peer: Peer) -> None:
    """Every kind of caption message."""
    await peer.open()
    await peer.until(Stop)
    await peer.send(partial("on"), final("one", 0.1, 0.2), closed(len(peer.audio) // 2))


def test_json_is_every_message_of_the_daemon(tmp_path: Path, capsys: Capture) -> None:
    with standin_thread(talkative) as server:
        assert caption(server, wav(tmp_path / "a.wav"), "--format", "json") == 0
    messages = [decode_server(line) for line in capsys.readouterr().out.splitlines()]
    assert [type(message) for message in messages] == [Ready, Partial, Final, Closed]


@pytest.mark.parametrize("name", ["srt", "vtt"])
def test_subtitles_of_several_files_run_on(name: str, tmp_path: Path) -> None:
    """The second file's times begin where the first one's audio ended; --output holds it all."""
    output = tmp_path / "out"
    path = wav(tmp_path / "a.wav", seconds=0.5)
    with standin_thread(talkative) as server:
        assert caption(server, path, path, "--format", name, "--output", output) == 0
    text = output.read_text(encoding="utf-8").replace(",", ".")
    assert text.startswith("WEBVTT\n\n") == (name == "vtt")
    assert re.findall(r".+ --> .+", text) == [
        "00:00:00.100 --> 00:00:00.200",
        "00:00:00.600 --> 00:00:00.700",
    ]


def test_on_a_terminal_partials_are_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal_of(columns=80) as terminal, standin_thread(talkative) as server:
        monkeypatch.setattr("sys.stderr", terminal.file)
        assert caption(server, wav(tmp_path / "a.wav")) == 0
        assert server.peers[0].start.partials
        assert terminal.seen() == "\r\x1b[K\x1b[2mon\x1b[0m\r\x1b[K"


def test_raw_audio_comes_from_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    pcm = bytes(range(256)) * 20
    with piped(monkeypatch) as writing, standin_thread() as server:
        os.write(writing, pcm)
        os.close(writing)
        assert caption(server, "-", "--rate", "8000", "--encoding", "mulaw", "--channels", "2") == 0
        assert os.get_blocking(sys.stdin.fileno())  # left as it was found
    assert server.peers[0].start == Start(rate=8000, encoding="mulaw", channels=2, partials=False)
    assert server.peers[0].audio == pcm
    assert capsys.readouterr() == ("one\n", "")


def test_a_pipe_is_captioned_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped(monkeypatch) as writing:

        async def script(peer: Peer) -> None:
            await peer.open()
            for _ in range(3):
                os.write(writing, b"ab")
                await peer.until(bytes)
            os.close(writing)
            await peer.until(Stop)
            await peer.send(closed())

        with standin_thread(script) as server:
            assert caption(server, "-") == 0
        assert server.peers[0].audio == b"ababab"


def test_raw_audio_comes_from_redirection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pcm = tone(0.35).tobytes()
    (tmp_path / "a.raw").write_bytes(pcm)
    with (tmp_path / "a.raw").open() as stdin, standin_thread() as server:
        monkeypatch.setattr("sys.stdin", stdin)
        assert caption(server, "-") == 0
    assert server.peers[0].start == Start(partials=False)
    assert server.peers[0].audio == pcm


@pytest.mark.parametrize(
    ("source", "complaint"), [("/dev/null", "holds no audio"), ("/", "cannot be read")]
)
def test_standard_input_without_audio(
    source: str, complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    descriptor = os.open(source, os.O_RDONLY)

    class Stdin:
        def isatty(self) -> bool:
            return False

        def fileno(self) -> int:
            return descriptor

    monkeypatch.setattr("sys.stdin", Stdin())  # Python itself would refuse to open a directory
    with standin_thread() as server:
        assert caption(server, "-") == 1
    os.close(descriptor)
    assert complaint in capsys.readouterr().err


def test_a_terminal_is_no_audio(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with terminal_of(columns=80) as terminal:
        monkeypatch.setattr("sys.stdin", terminal.file)
        assert caption("ws://127.0.0.1:1", "-") == 1
    assert "terminal" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--rate", "--channels"])
def test_zero_is_no_default(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "raw"
    path.write_bytes(bytes(3200))
    with path.open("rb") as file, standin_thread() as server:
        monkeypatch.setattr("sys.stdin", file)
        assert caption(server, "-", flag, "0") == 1
    assert server.peers == []
    assert f"`{flag.strip('-')}` of `start` must be" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["8000", "0"])
def test_the_format_is_for_raw_audio_alone(value: str, tmp_path: Path, capsys: Capture) -> None:
    """A file knows its own rate: contradicting it is a mistake that is told, not ignored."""
    assert caption("ws://127.0.0.1:1", wav(tmp_path / "a.wav"), "--rate", value) == 2
    assert "--rate" in capsys.readouterr().err


def test_realtime_pace_takes_as_long_as_the_sound(tmp_path: Path) -> None:
    path = wav(tmp_path / "a.wav", seconds=0.5)
    with standin_thread() as server:
        began = time.monotonic()
        assert caption(server, path, "--pace", "realtime") == 0
        assert time.monotonic() - began >= 0.4
    assert server.peers[0].audio == tone(0.5).tobytes()


def test_the_sample_is_what_the_demo_needs() -> None:
    """20 to 40 s of 16 kHz mono with a line of text for each utterance."""
    clients = Path(__file__).parents[1] / "clients"
    sample = soundfile.info(clients / "sample.flac")
    assert (sample.samplerate, sample.channels) == (RATE, 1)
    assert 20 <= sample.duration <= 40
    lines = (clients / "sample.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 5
    assert all(lines)


def test_a_file_without_words_is_told(tmp_path: Path, capsys: Capture) -> None:
    with standin_thread(answering(final(""), closed())) as server:
        assert caption(server, wav(tmp_path / "a.wav")) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "a.wav: no words were heard in it" in err
