"""What all captioning verbs share, seen through `captiond file`: the simplest of them."""

import argparse
import asyncio
import os
import re
import signal
import socket
import threading
from pathlib import Path
from typing import get_args

import pytest
from msgspec import structs

from clients.captioning import NUMBERS, Interrupt, exit_status
from clients.file import add_arguments, run
from streaming.protocol import Error, Start, Stop
from streaming.settings import Numbers
from tests.support.fakes import PATIENCE
from tests.support.file_verb import RATE, Capture, caption, piped, wav
from tests.support.standin import Peer, answering, closed, final, interrupted, ready, standin_thread


def test_the_daemons_address_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with standin_thread() as server:
        monkeypatch.setenv("CAPTIOND_URL", server.url)
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        assert run(parser.parse_args([str(wav(tmp_path / "a.wav"))])) == 0
    assert capsys.readouterr().out == "one\n"


@pytest.mark.parametrize(
    ("words", "language"),
    [
        ([], None),
        (["--language", "en"], "en"),
        (["--language", "en,de"], ["en", "de"]),
        (["--language", "en", "--language", "de, fr"], ["en", "de", "fr"]),
    ],
)
def test_languages(words: list[str], language: str | list[str] | None, tmp_path: Path) -> None:
    with standin_thread() as server:
        caption(server, wav(tmp_path / "a.wav"), *words)
    assert server.peers[0].start.language == language


def test_options_reach_the_daemon(tmp_path: Path) -> None:
    words = "--task translate --hot-word Ada --hot-word Lovelace --stability commit --words"
    words += " --prompt Ada --temperature 0.5 --seed 7 --partials --replace um= --block damn*"
    words += " --numbers digits"
    replacement = ["--replace", "cap she on=captiond"]
    with standin_thread() as server:
        caption(server, wav(tmp_path / "a.wav"), *words.split(), *replacement)
    assert server.peers[0].start == Start(
        rate=RATE,
        task="translate",
        prompt="Ada",
        temperature=0.5,
        seed=7,
        partials=True,
        hot_words=["Ada", "Lovelace"],
        stability="commit",
        words=True,
        replacements={"cap she on": "captiond", "um": ""},
        blocklist=["damn*"],
        numbers="digits",
    )


def test_choices_are_those_of_the_protocol() -> None:
    assert get_args(Numbers) == NUMBERS


def test_a_replacement_names_both(tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        caption("ws://127.0.0.1:1", wav(tmp_path / "a.wav"), "--replace", "=x")
    assert "'=x' is not HEARD=WRITTEN" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([], False),
        (["--format", "srt"], False),
        (["--format", "json"], True),
        (["--format", "json", "--no-partials"], False),
        (["--partials"], True),
    ],
)
def test_partials_are_wanted_where_seen(words: list[str], wanted: bool, tmp_path: Path) -> None:
    """No terminal here: only json shows them, unless the user decides."""
    with standin_thread() as server:
        caption(server, wav(tmp_path / "a.wav"), *words)
    assert server.peers[0].start.partials is wanted


@pytest.mark.parametrize(
    ("words", "wanted"),
    [([], False), (["--format", "json"], False), (["--format", "vtt"], True), (["--words"], True)],
)
def test_subtitles_ask_for_the_times_of_words(
    words: list[str], wanted: bool, tmp_path: Path
) -> None:
    """So does an output whose ending is that of subtitles."""
    with standin_thread() as server:
        caption(server, wav(tmp_path / "a.wav"), *words)
        caption(server, tmp_path / "a.wav", *words, "--output", tmp_path / "a.srt")
    assert [peer.start.words for peer in server.peers] == [
        wanted,
        "--format" not in words or wanted,
    ]


@pytest.mark.parametrize("value", ["9", "nan", "-1"])
def test_a_wrong_value_is_named(value: str, tmp_path: Path, capsys: Capture) -> None:
    with standin_thread() as server:
        assert caption(server, wav(tmp_path / "a.wav"), "--temperature", value) == 1
    assert "`temperature` of `start` must be a number from 0.0 to 2.0" in capsys.readouterr().err
    assert server.peers == []


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path, capsys: Capture) -> None:
    assert caption("ws://127.0.0.1:1", wav(tmp_path / "a.wav"), "--output", tmp_path) == 1
    assert f"cannot write {tmp_path}" in capsys.readouterr().err


def test_an_output_outlives_a_run_that_fails(tmp_path: Path, capsys: Capture) -> None:
    """It is written anew with the first caption, or when there was none to write."""
    output, audio = tmp_path / "old.srt", wav(tmp_path / "a.wav")
    output.write_text("of yesterday")
    words = audio, "--output", output  # whose ending names the format
    assert caption("ws://127.0.0.1:1", *words) == 1
    assert output.read_text() == "of yesterday"
    with standin_thread() as server:
        assert caption(server, *words) == 0
    assert output.read_text().startswith("1\n00:00:00,000 --> ")
    assert "yesterday" not in output.read_text()
    with standin_thread(answering(closed())) as server:
        assert caption(server, *words) == 0
    assert output.read_text() == ""


def test_a_device_is_an_output_too(tmp_path: Path) -> None:
    with standin_thread() as server:
        assert caption(server, wav(tmp_path / "a.wav"), "--output", os.devnull) == 0


def test_a_recording_is_not_written_over(tmp_path: Path, capsys: Capture) -> None:
    audio = wav(tmp_path / "a.wav")
    before = audio.read_bytes()
    assert caption("ws://127.0.0.1:1", audio, "--output", tmp_path / "." / "a.wav") == 2
    assert "which is to be read" in capsys.readouterr().err
    assert audio.read_bytes() == before


def test_a_lost_connection_is_told_and_its_return(tmp_path: Path, capsys: Capture) -> None:
    async def script(peer: Peer) -> None:
        first = await peer.receive()
        limits = structs.replace(ready().limits, resume_seconds=60.0)
        await peer.send(structs.replace(ready(), key="k", limits=limits))
        if isinstance(first, Start):
            peer.websocket.transport.abort()
            return
        await peer.until(Stop)
        await peer.send(final("all of it"), closed())

    with standin_thread(script) as server:
        assert caption(server, wav(tmp_path / "a.wav")) == 0
    out, err = capsys.readouterr()
    assert out == "all of it\n"
    assert re.search(r"captiond file: the connection is lost .*\n.*the connection is mended", err)


def test_an_interrupt_ends_the_wait_for_a_daemon(tmp_path: Path, capsys: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"ws://127.0.0.1:{deaf.getsockname()[1]}"

        def interrupt() -> None:
            with deaf.accept()[0]:
                os.kill(os.getpid(), signal.SIGINT)
                over.wait(PATIENCE)

        over, interrupting = threading.Event(), threading.Thread(target=interrupt)
        interrupting.start()
        assert caption(url, wav(tmp_path / "a.wav")) == 130
        over.set()
        interrupting.join()
    assert "interrupted before a session began" in capsys.readouterr().err


def test_a_reader_that_goes_ends_the_verb_quietly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """`captiond file … | head -1` prints no stack trace."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout, standin_thread() as server:
        monkeypatch.setattr("sys.stdout", stdout)
        assert caption(server, wav(tmp_path / "a.wav")) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_an_interrupt_gets_the_pending_finals(
    number: signal.Signals, status: int, tmp_path: Path, capsys: Capture
) -> None:
    script = interrupted(number=number)
    path = wav(tmp_path / "a.wav", seconds=60)
    with standin_thread(script) as server:
        assert caption(server, path, path, "--pace", "realtime") == status
    assert len(server.peers) == 1
    assert len(server.peers[0].audio) < 2 * 60 * RATE
    assert capsys.readouterr() == ("spoken so far\n", "")


def test_an_interrupt_waits_for_no_pipe(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with piped(monkeypatch) as writing, standin_thread(interrupted(after=0)) as server:
        assert caption(server, "-") == 130
        os.close(writing)
    assert capsys.readouterr().out == "spoken so far\n"


def test_a_second_interrupt_insists(tmp_path: Path, capsys: Capture) -> None:
    """A daemon that owes its finals for ever cannot hold the user."""

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(bytes)
        os.kill(os.getpid(), signal.SIGINT)
        await peer.until(Stop)
        os.kill(os.getpid(), signal.SIGINT)
        await peer.websocket.wait_closed()

    with standin_thread(script) as server:
        assert caption(server, wav(tmp_path / "a.wav", seconds=60), "--pace", "realtime") == 130
    assert capsys.readouterr() == ("", "")


def test_a_fatal_error_comes_after_the_captions(tmp_path: Path, capsys: Capture) -> None:
    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(bytes)
        await peer.send(Error(code="shutting_down", message="bye", fatal=True), final("so far"))
        await peer.send(closed())

    with standin_thread(script) as server:
        path = wav(tmp_path / "a.wav", seconds=60)
        assert caption(server, path, "--pace", "realtime") == 1
    out, err = capsys.readouterr()
    assert out == "so far\n"
    assert err == "captiond file: the daemon ended the session: bye (shutting_down)\n"


def test_an_utterance_that_fails_shows_in_the_exit_status(tmp_path: Path, capsys: Capture) -> None:
    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await peer.send(Error(code="decode_failed", message="utterance 0", fatal=False))
        await peer.send(final(""), final("next", 1.0, 2.0, utterance=1), closed())

    path = wav(tmp_path / "a.wav")
    with standin_thread(script) as server:
        assert caption(server, path, path) == 1
    out, err = capsys.readouterr()
    assert out == "next\nnext\n"
    assert err.count("utterance 0 (decode_failed)") == 2


def defaults_hold() -> bool:
    return (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )


async def test_signals_are_released_when_nobody_interrupted() -> None:
    with Interrupt() as interrupt:
        assert not defaults_hold()
    assert defaults_hold()
    assert (interrupt.requested.is_set(), interrupt.status) == (False, 0)


async def test_after_an_interrupt_the_signals_are_released_in_the_end() -> None:
    acts: list[str] = []
    with Interrupt() as interrupt:
        interrupt.last_act = lambda: acts.append("last")
        os.kill(os.getpid(), signal.SIGTERM)
        await interrupt.requested.wait()
        assert not defaults_hold()
    assert defaults_hold()
    assert (interrupt.status, acts) == (143, [])


def test_a_second_signal_does_the_last_act_though_the_program_is_stuck() -> None:
    acts: list[str] = []

    async def stuck() -> None:
        with Interrupt() as interrupt:
            interrupt.last_act = lambda: acts.append("last")
            os.kill(os.getpid(), signal.SIGTERM)
            await interrupt.requested.wait()
            signal.raise_signal(signal.SIGINT)
            pytest.fail("the second signal went unheard")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(stuck())
    assert acts == ["last"]
    assert defaults_hold()


def test_the_exit_status_is_the_programs_own() -> None:
    assert exit_status(lambda: 7) == 7
