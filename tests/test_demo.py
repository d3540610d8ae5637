"""`captiond demo` as a user runs it: a scripted daemon is a real program here, too."""

import argparse
import io
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from clients import demo
from clients.caption_formats import Screen
from clients.captioning import Interrupt
from clients.demo import Transcript, overlap
from clients.file import BLOCK_S, open_file
from streaming.protocol import Error, Lag, Speech
from tests.support.daemon_standin import FATES
from tests.support.fakes import PATIENCE
from tests.support.python import ROOT
from tests.support.standin import Peer, closed, final, partial, ready, standin
from tests.support.terminal import terminal_of

Capture = pytest.CaptureFixture[str]
CLOCK_S = 0.01  # how early a timer may fire
# The demo as a program: text that the daemon hears, path of the sample.
PROGRAM = """
import argparse, pathlib, sys
from clients import demo

demo.STOP_S = 3600.0
daemon = (sys.executable, "-P", "-m", "tests.support.daemon_standin", "deaf-interrupted")
args = argparse.Namespace(model=sys.argv[1], drafter="none")
sys.exit(demo.run(args, program=daemon, sample=pathlib.Path(sys.argv[2])))
"""
SAID = ["Good morning, what is this?", "It listens while you speak."]


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A third of a second of sound, and what is said in it."""
    path = tmp_path / "sample.flac"
    tone = np.sin(np.arange(5_000) * 0.1) * 3_000
    soundfile.write(path, tone.astype(np.int16), 16_000, subtype="PCM_16")
    path.with_suffix(".txt").write_text("\n".join(SAID))
    return path


def children() -> set[int]:
    """Processes begun from here, those that nobody has waited for included."""
    return {one.pid for one in psutil.Process().children()}


def show(
    sample: Path, fate: str = "well", hears: str = "/".join(SAID), patience_s: float = PATIENCE
) -> int:
    """The verb's exit status, with a scripted daemon that hears `hears`."""
    assert fate in FATES
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    return demo.run(
        parser.parse_args(["--model", hears]),
        program=(sys.executable, "-P", "-m", "tests.support.daemon_standin", fate),
        sample=sample,
        patience_s=patience_s,
    )


def test_captions_and_a_summary_are_shown(sample: Path, capsys: Capture) -> None:
    """Where nobody looks on, as in a log, each partial has a line, too. Status 0."""
    assert show(sample) == 0
    out, err = capsys.readouterr()
    *lines, summary = out.splitlines()
    assert lines == [
        "  0.0 -  0.5 s … Some",
        f"  0.0 -  0.2 s   {SAID[0]}",
        "  0.0 -  0.5 s … Some",
        f"  0.0 -  0.2 s   {SAID[1]}",
    ]
    assert re.fullmatch(r"2 utterances in 0\.3 s of audio; finals came \d+\.\d s after .*", summary)
    assert err.count("\n") == 1  # that the daemon starts


def test_on_a_terminal_partials_are_replaced_in_place(
    sample: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal_of(80) as terminal:
        monkeypatch.setattr("sys.stderr", terminal.file)
        assert show(sample) == 0
        seen = terminal.seen()
    assert "\r\x1b[K" in seen
    assert "Some" in seen
    assert "Some" not in capsys.readouterr().out


async def test_the_sound_is_sent_at_its_own_pace(sample: Path) -> None:
    arrivals: list[float] = []

    async def script(peer: Peer) -> None:
        await peer.open()
        while isinstance(await peer.receive(), bytes):
            arrivals.append(time.monotonic())
        await peer.send(closed())

    transcript = Transcript(time.monotonic, partials=False)
    screen = Screen(demo.NAME, transcript, io.StringIO(), io.StringIO())
    async with standin(script) as server:
        with open_file(str(sample)) as audio, Interrupt() as stop:
            await demo.play(server.url, audio, screen, transcript, stop)
    assert len(arrivals) == 4
    for index, arrival in enumerate(arrivals):
        assert arrival - transcript.began >= index * BLOCK_S - CLOCK_S


@pytest.mark.parametrize(
    ("hears", "says"),
    [
        ("Good morning, what is that?/It whistles.", "only 50% of the sample's words were"),
        (" ", "no words came back"),
    ],
)
def test_too_few_words_are_a_failure(hears: str, says: str, sample: Path, capsys: Capture) -> None:
    assert show(sample, hears=hears) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fate", "says"),
    [
        ("dead", ["ended before it was ready; the daemon ended with status 3", "no such model"]),
        ("crash", ["the connection to the daemon ended", "status 5", "out of memory"]),
        ("bad-end", ["the daemon ended with status 7"]),
    ],
)
def test_a_daemon_that_fails_is_named_with_its_log(
    fate: str, says: list[str], sample: Path, capsys: Capture
) -> None:
    assert show(sample, fate) == 1
    error = capsys.readouterr().err
    for words in says:
        assert words in error
    assert "Traceback" not in error


def test_a_daemon_that_is_never_ready_is_given_up(sample: Path, capsys: Capture) -> None:
    assert show(sample, "loading", patience_s=0.5) == 1
    assert "the daemon was not ready within 0.5 s. The daemon's log" in capsys.readouterr().err


def test_a_daemon_that_does_not_stop_is_killed(
    sample: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The captions count for nothing then: the daemon's end belongs to the demo."""
    monkeypatch.setattr(demo, "STOP_S", 0.2)
    before = children()
    assert show(sample, "deaf") == 1
    out, err = capsys.readouterr()
    assert SAID[1] in out
    assert "did not stop within 0.2 s of SIGTERM and was killed" in err
    assert children() <= before, "nothing is left behind"


@pytest.mark.parametrize("fate", ["importing-interrupted", "loading-interrupted", "interrupted"])
def test_an_interrupt_ends_demo_and_daemon(fate: str, sample: Path, capsys: Capture) -> None:
    """While it starts or loads, and in mid-stream: then with what was spoken so far. None is a failure."""
    before = children()
    assert show(sample, fate) == 130
    out, err = capsys.readouterr()
    assert (SAID[0] in out) == (fate == "interrupted")
    assert err.count("\n") == 1
    assert children() <= before


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_two_interrupts_leave_no_daemon(number: signal.Signals, status: int, sample: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, "/".join(SAID), str(sample)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert any(SAID[0] in line for line in program.stdout)  # the first interrupt is under way
        (daemon,) = psutil.Process(program.pid).children()
        watch = os.pidfd_open(daemon.pid)
        try:
            program.send_signal(number)
            assert program.wait(PATIENCE) == status
            ended, _, _ = select.select([watch], [], [], PATIENCE)
            assert ended == [watch]
        finally:
            program.kill()
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(watch, signal.SIGKILL)
            os.close(watch)


def test_a_reader_who_leaves_ends_it_quietly(
    sample: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `captiond demo | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert show(sample) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_the_daemon_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: Path
) -> None:
    """Also where the working directory holds other things by our names."""
    for name in ("tests", "daemon", "streaming"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    assert show(sample) == 0


@pytest.mark.parametrize(
    ("reference", "text", "share"),
    [
        ("Good morning, you.", "good MORNING you", 1.0),
        ("one two three four", "one two four", 0.75),
        ("one two three four", "one two five three six four", 1.0),
        ("one two", "two one", 0.5),
        ("one", "", 0.0),
    ],
)
def test_overlap_counts_words_in_order(reference: str, text: str, share: float) -> None:
    """Case and punctuation aside; what was invented is no help and no harm."""
    assert overlap(reference, text) == share


def test_the_delay_is_that_of_the_middle_final() -> None:
    """From the end of its utterance, in the time of the stream."""
    times = iter([103.0, 107.0, 110.0, 112.0])
    transcript = Transcript(lambda: next(times), partials=False)
    transcript.began = 100.0
    for end in (2.0, 4.0, 9.5, 11.0):
        transcript.render(final("word", end=end))
    transcript.render(final("  ", end=11.5))
    transcript.render(closed(12 * 16_000))
    assert transcript.summary.startswith("4 utterances in 12.0 s of audio; finals came 1.0 s")


def test_only_captions_are_lines() -> None:
    transcript = Transcript(lambda: 0.0, partials=True)
    others = (
        ready(),
        Speech(event="end", utterance=0, at=0.5),
        Lag(seconds=1.0, shedding="nothing"),
        Error(code="decode_failed", message="x", fatal=False),
        final(" "),
        closed(),
    )
    assert [transcript.render(message) for message in others] == [""] * len(others)
    assert transcript.render(partial("a\x1bb")) == "  0.0 -  0.5 s … a b\n"


@pytest.mark.real
def test_the_true_demo_succeeds(capsys: Capture) -> None:
    """The bundled sample, the default model, the daemon as installed."""
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    assert demo.run(parser.parse_args([])) == 0
    assert "utterances in 32.0 s of audio" in capsys.readouterr().out
