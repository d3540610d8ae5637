"""`captiond mic` with a fake sounddevice and a scripted daemon over real sockets."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clients import mic
from clients.mic import Device, DeviceError, add_arguments, choose, listing, loudness, run
from streaming.protocol import Error, Start, Stop
from tests.support.fakes import PATIENCE
from tests.support.standin import (
    Peer,
    Standin,
    answering,
    closed,
    final,
    interrupted,
    partial,
    standin_thread,
)
from tests.support.terminal import terminal_of

Capture = pytest.CaptureFixture[str]
Player = Callable[["FakeStream"], None]


class PortAudioError(Exception):
    pass


def device(index: int, name: str, inputs: int = 1, rate: float = 48_000.0) -> dict[str, Any]:
    return {"index": index, "name": name, "max_input_channels": inputs, "default_samplerate": rate}


DEVICES = (
    device(0, "Speakers", inputs=0),
    device(1, "Built-in Microphone", inputs=2),
    device(2, "USB Microphone", rate=44_100.0),
    device(3, "USB"),
)


class FakeStream:
    """A RawInputStream: `start` runs the player of this opening on a thread, as PortAudio would."""

    def __init__(self, module: "FakeSounddevice", **settings: Any) -> None:
        self.settings = settings
        self.stopped = threading.Event()
        self.closed = threading.Event()
        self.delivered = 0  # bytes
        self.player = module.next_player()
        self._thread = threading.Thread(target=self.player, args=(self,))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def close(self) -> None:
        self.stop()
        self.closed.set()

    def deliver(self, sound: bytes, status: str = "") -> None:
        # sounddevice hands over a buffer that is only valid during the call.
        buffer = bytearray(sound)
        self.settings["callback"](memoryview(buffer), len(sound) // 2, None, status)
        self.delivered += len(sound)
        buffer[:] = b"\xee" * len(buffer)


class FakeSounddevice:
    """As much of the module as `captiond mic` uses, over devices that tests plug and unplug.

    accepts: the (rate, channels) that the devices take. players: what each opening delivers; one
    that is an error refuses to open.
    """

    def __init__(
        self,
        *players: Player | PortAudioError,
        devices: tuple[dict[str, Any], ...] = DEVICES,
        default: int = 1,
        accepts: tuple[tuple[int, int], ...] = ((16_000, 1),),
    ) -> None:
        self.PortAudioError = PortAudioError
        self.default = SimpleNamespace(device=[default, 0])
        self.plugged = devices  # what is there; PortAudio knows it only once it is initialised
        self.streams: list[FakeStream] = []
        self._players = list(players)
        self._accepts = accepts
        self._known: tuple[dict[str, Any], ...] | None = devices

    def next_player(self) -> Player:
        player = self._players.pop(0)
        if isinstance(player, PortAudioError):
            raise player
        return player

    def query_devices(self) -> tuple[dict[str, Any], ...]:
        if self._known is None:
            raise PortAudioError("PortAudio not initialized")
        return self._known

    def check_input_settings(
        self, *, device: int, channels: int, dtype: str, samplerate: float
    ) -> None:
        assert dtype == "int16"
        if (samplerate, channels) not in self._accepts:
            raise PortAudioError("Invalid sample rate")

    def RawInputStream(self, **settings: Any) -> FakeStream:  # noqa: N802 - sounddevice's name
        stream = FakeStream(self, **settings)
        self.streams.append(stream)
        return stream

    def terminate(self) -> None:
        if self._known is None:
            raise PortAudioError("PortAudio not initialized")
        self._known = None

    def initialise(self) -> None:
        self._known = self.plugged

    _terminate, _initialize = terminate, initialise  # as sounddevice calls them


def speak(stream: FakeStream, blocks: int = 3, status: str = "") -> None:
    """Blocks of 50 ms at 16 kHz, numbered by their samples."""
    for number in range(blocks):
        stream.deliver(np.full(800, number, np.int16).tobytes(), status)


def speak_on(stream: FakeStream) -> None:
    """A microphone that works until it is stopped."""
    while not stream.stopped.wait(0.005):
        speak(stream, 1)


def silent(stream: FakeStream) -> None:
    """An unplugged microphone: no callback comes any more."""


Listen = Callable[..., int]


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Listen:
    """The verb: its exit status, with a server, a fake sounddevice and further words of the command."""

    def listen(server: Standin | None, fake: FakeSounddevice, *words: str) -> int:
        monkeypatch.setitem(sys.modules, "sounddevice", fake)
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        url = "ws://127.0.0.1:1" if server is None else server.url
        return run(parser.parse_args([*words, "--url", url]))

    return listen


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no loss of the device."""
    monkeypatch.setattr(mic, "PATIENCE_S", PATIENCE)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss is noticed, and the device reopened, at once; one that works is not taken for lost."""
    start = FakeStream.start

    def started(stream: FakeStream) -> None:
        works = stream.player is speak_on
        monkeypatch.setattr(mic, "PATIENCE_S", PATIENCE if works else 0.3)
        start(stream)

    monkeypatch.setattr(FakeStream, "start", started)
    monkeypatch.setattr(mic, "BACKOFF_S", (0.0, 0.01))


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (None, 1),
        ("2", 2),
        ("built", 1),
        ("BUILT-IN MICROPHONE", 1),
        ("usb mic", 2),
        ("usb", 3),  # the whole name of one beats a part of two
    ],
)
def test_a_device_is_the_default_or_a_number_or_part_of_a_name(
    wanted: str | None, index: int
) -> None:
    assert choose(FakeSounddevice(), wanted).index == index


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ("9", "device 9 is no microphone"),
        ("0", "device 0 is no microphone"),
        ("speakers", "no microphone is called speakers"),
        ("microphone", "several microphones are called microphone"),
    ],
)
def test_a_device_that_is_none_or_several_is_an_error_with_the_list(
    wanted: str, complaint: str
) -> None:
    fake = FakeSounddevice()
    with pytest.raises(DeviceError) as caught:
        choose(fake, wanted)
    assert str(caught.value) == f"{complaint}\ndevices that record:\n{listing(fake)}"


def test_the_list_shows_what_records_and_marks_the_default() -> None:
    assert listing(FakeSounddevice(default=2)).splitlines() == [
        "    1  Built-in Microphone  (48000 Hz, channels: 2)",
        "*   2  USB Microphone  (44100 Hz, channels: 1)",
        "    3  USB  (48000 Hz, channels: 1)",
    ]


@pytest.mark.parametrize(
    ("accepts", "rate", "channels"),
    [
        (((16_000, 1), (48_000, 1)), 16_000, 1),
        (((48_000, 1), (16_000, 2)), 48_000, 1),
        (((16_000, 2), (48_000, 2)), 16_000, 2),
        (((48_000, 2),), 48_000, 2),
    ],
)
def test_a_device_that_refuses_16_khz_mono_is_opened_as_it_can(
    accepts: tuple[tuple[int, int], ...], rate: int, channels: int
) -> None:
    """Its own rate before its own channels: the daemon converts either."""
    fake = FakeSounddevice(accepts=accepts)
    assert choose(fake, None) == Device(1, "Built-in Microphone", rate, channels)


def test_a_device_that_takes_no_format_is_an_error_with_the_list() -> None:
    fake = FakeSounddevice(accepts=())
    with pytest.raises(DeviceError, match="takes neither 16000 Hz nor 48000 Hz") as caught:
        choose(fake, None)
    assert listing(fake) in str(caught.value)


def test_what_is_recorded_reaches_the_daemon(capsys: Capture, listen: Listen) -> None:
    fake = FakeSounddevice(speak)
    with standin_thread(interrupted(3 * 1600)) as server:
        assert listen(server, fake, "--language", "en") == 0
    (peer,) = server.peers
    assert peer.start == Start(language="en", partials=False)
    assert peer.audio == b"".join(np.full(800, n, np.int16).tobytes() for n in range(3))
    (stream,) = fake.streams
    assert stream.closed.is_set()
    assert stream.settings["device"] == 1
    assert stream.settings["blocksize"] == 800
    out, err = capsys.readouterr()
    assert out == "spoken so far\n"
    assert err == "captiond mic: listening to Built-in Microphone at 16000 Hz; Ctrl-C ends\n"


def test_the_native_format_goes_into_start(listen: Listen) -> None:
    fake = FakeSounddevice(speak_on, accepts=((48_000, 2),))
    with standin_thread(interrupted()) as server:
        assert listen(server, fake) == 0
    assert (server.peers[0].start.rate, server.peers[0].start.channels) == (48_000, 2)
    settings = fake.streams[0].settings
    assert (settings["samplerate"], settings["channels"]) == (48_000, 2)


@pytest.mark.parametrize(
    ("fake", "complaint"),
    [
        (
            FakeSounddevice(devices=(), default=-1),
            "Is one plugged in, and does `arecord -l` list it?",
        ),
        (FakeSounddevice(PortAudioError("Device unavailable")), "does not open: Device unavail"),
    ],
)
def test_no_usable_microphone_is_one_error_and_status_2(
    fake: FakeSounddevice, complaint: str, capsys: Capture, listen: Listen
) -> None:
    assert listen(None, fake) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert err.endswith(f"devices that record:\n{listing(fake)}\n")


def test_a_stream_that_does_not_start_is_closed(
    monkeypatch: pytest.MonkeyPatch, listen: Listen
) -> None:
    def refuse(stream: FakeStream) -> None:
        raise PortAudioError("no start")

    fake = FakeSounddevice(silent)
    monkeypatch.setattr(FakeStream, "start", refuse)
    assert listen(None, fake) == 2
    assert fake.streams[0].closed.is_set()


def test_the_devices_are_listed_on_request(capsys: Capture, listen: Listen) -> None:
    fake = FakeSounddevice()
    assert listen(None, fake, "--list-devices") == 0
    assert capsys.readouterr().out == f"{listing(fake)}\n"


def test_a_sound_system_that_is_down_is_an_error(capsys: Capture, listen: Listen) -> None:
    fake = FakeSounddevice()
    fake.terminate()
    assert listen(None, fake, "--list-devices") == 2
    assert listen(None, fake) == 2
    assert capsys.readouterr().err.count("the sound system does not answer") == 2


@pytest.mark.parametrize("source", [None, "raise OSError('PortAudio library not found')"])
def test_without_portaudio_the_packages_are_named(
    source: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Whether sounddevice is absent or, as it does without its library, fails to import."""
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    if source is not None:
        monkeypatch.delitem(sys.modules, "sounddevice")
        (tmp_path / "sounddevice.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
    assert run(argparse.Namespace()) == 1
    err = capsys.readouterr().err
    assert "libportaudio2" in err
    assert "captiond[mic]" in err
    assert err.count("\n") == 1


def test_without_a_daemon_the_error_says_how_to_start_one(capsys: Capture, listen: Listen) -> None:
    fake = FakeSounddevice(speak)
    assert listen(None, fake) == 1
    assert "captiond serve" in capsys.readouterr().err
    assert fake.streams[0].closed.is_set()


class Unplugged:
    """A daemon script over two sessions: the first is left by a lost microphone, then Ctrl-C."""

    def __init__(self) -> None:
        self.sessions = 0

    async def __call__(self, peer: Peer) -> None:
        self.sessions += 1
        if self.sessions == 1:
            await peer.open()
            await peer.until(Stop)
            await peer.send(final("before"), closed())
        else:
            await interrupted()(peer)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("status", ["", "input overflow"])
def test_an_unplugged_microphone_is_waited_for(
    status: str, capsys: Capture, listen: Listen
) -> None:
    """No callback, or nothing but errors: the utterance is finalised, the device reopened.

    The device comes back as another number: it is known by its name. What was recorded, errors or
    not, has been sent.
    """

    def lost(stream: FakeStream) -> None:
        speak(stream, 2)
        while status and not stream.stopped.wait(0.005):
            speak(stream, 1, status)

    fake = FakeSounddevice(lost, speak_on)
    fake.plugged = (device(7, "USB"),)
    with standin_thread(Unplugged()) as server:
        assert listen(server, fake, "--device", "3") == 0
    assert len(server.peers[0].audio) >= 1600
    assert [stream.settings["device"] for stream in fake.streams] == [3, 7]
    assert all(stream.closed.is_set() for stream in fake.streams)
    out, err = capsys.readouterr()
    assert out == "before\nspoken so far\n"
    assert err.count("waiting for it to come back") == 1


@pytest.mark.usefixtures("hasty")
def test_reopening_goes_on_until_the_device_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, listen: Listen
) -> None:
    fake = FakeSounddevice(silent, PortAudioError("busy"), speak_on)
    plugged = iter([None, (), DEVICES, DEVICES])  # at each attempt; None: nothing answers

    def change() -> None:
        devices = next(plugged)
        if devices is None:
            raise PortAudioError("down")
        fake.plugged = devices
        fake.initialise()

    monkeypatch.setattr(fake, "_initialize", change)
    with standin_thread(Unplugged()) as server:
        assert listen(server, fake, "--device", "usb") == 0
    assert len(server.peers) == 2
    assert next(plugged, "all used") == "all used"
    assert capsys.readouterr().out == "before\nspoken so far\n"


@pytest.mark.usefixtures("hasty")
def test_the_default_device_may_be_another_one_when_it_comes_back(listen: Listen) -> None:
    fake = FakeSounddevice(silent, speak_on)
    fake.plugged = (device(1, "Headset"),)
    with standin_thread(Unplugged()) as server:
        assert listen(server, fake) == 0
    assert len(server.peers) == 2


def test_an_interrupt_ends_the_wait_for_a_device(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, listen: Listen
) -> None:
    monkeypatch.setattr(mic, "PATIENCE_S", 0.1)
    monkeypatch.setattr(mic, "BACKOFF_S", (60.0,))

    class Terminal:
        """Standard error whose reader presses Ctrl-C when told that the device is awaited."""

        def isatty(self) -> bool:
            return False

        def write(self, text: str) -> None:
            if "waiting" in text:
                os.kill(os.getpid(), signal.SIGINT)

        def flush(self) -> None:
            pass

    monkeypatch.setattr("sys.stderr", Terminal())
    with standin_thread(Unplugged()) as server:
        assert listen(server, FakeSounddevice(silent)) == 0
    assert capsys.readouterr().out == "before\n"


def test_sound_that_finds_no_room_is_counted_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, listen: Listen
) -> None:
    monkeypatch.setattr(mic, "QUEUE_S", mic.BLOCK_S)
    start = FakeStream.start

    def burst(stream: FakeStream) -> None:
        speak(stream, 5)  # before the event loop gets to run
        start(stream)

    monkeypatch.setattr(FakeStream, "start", burst)
    with standin_thread(interrupted()) as server:
        assert listen(server, FakeSounddevice(silent)) == 0
    assert len(server.peers[0].audio) == 1600
    assert "0.20 s lost: the daemon does not keep up" in capsys.readouterr().err


def test_an_interrupt_loses_nothing_that_was_recorded(
    monkeypatch: pytest.MonkeyPatch, listen: Listen
) -> None:
    start = FakeStream.start

    def overtaken(stream: FakeStream) -> None:
        speak(stream, 200)  # ten seconds, before the event loop gets to run
        os.kill(os.getpid(), signal.SIGINT)
        start(stream)

    monkeypatch.setattr(FakeStream, "start", overtaken)
    fake = FakeSounddevice(speak_on)
    with standin_thread(answering(final("all of it"), closed())) as server:
        assert listen(server, fake) == 0
    assert len(server.peers[0].audio) == fake.streams[0].delivered >= 200 * 1600


def test_errors_of_the_device_are_told_once_while_they_last(
    capsys: Capture, listen: Listen
) -> None:
    def stutter(stream: FakeStream) -> None:
        speak(stream, 1)
        speak(stream, 3, "input overflow")
        speak_on(stream)

    with standin_thread(interrupted(6 * 1600)) as server:
        assert listen(server, FakeSounddevice(stutter)) == 0
    assert capsys.readouterr().err.count("reports input overflow") == 1


def test_the_level_stands_beside_the_partial_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, listen: Listen
) -> None:
    loud = np.full(800, 16_384, np.int16).tobytes()  # -6 dBFS

    def shout(stream: FakeStream) -> None:
        while not stream.stopped.wait(0.005):
            stream.deliver(loud)

    script = interrupted(1, [partial("hello", stable=5)])
    with terminal_of(columns=80) as terminal, standin_thread(script) as server:
        monkeypatch.setattr("sys.stderr", terminal.file)
        assert listen(server, FakeSounddevice(shout)) == 0
        seen = terminal.seen()
    assert "\r\x1b[K[######### ] hello" in seen
    assert "\r\x1b[Khello" in seen  # no meter while the last final is awaited
    assert seen.endswith("\r\x1b[K")  # the line is left clean


@pytest.mark.parametrize(
    ("block", "level"),
    [
        (b"", -60.0),
        (bytes(1600), -60.0),
        (np.full(800, 1, np.int16).tobytes(), -60.0),
        (np.full(800, 3277, np.int16).tobytes(), -20.0),
        (np.full(800, -32_768, np.int16).tobytes(), 0.0),
    ],
)
def test_loudness(block: bytes, level: float) -> None:
    assert loudness(block) == pytest.approx(level, abs=0.01)


def test_a_daemon_that_reports_a_lost_utterance_shows_in_the_exit_status(listen: Listen) -> None:
    lost = Error(code="decode_failed", message="utterance 0", fatal=False)
    with standin_thread(interrupted(1, [lost])) as server:
        assert listen(server, FakeSounddevice(speak_on)) == 1
