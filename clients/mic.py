"""`captiond mic`: live captions of a microphone.

Owns the audio device; captioning.py has sessions, options and output. sounddevice is imported when the
verb runs, so that captiond installs without PortAudio.

Opening the device begins a session. Unplugging the microphone ends it, with its pending finals; a
microphone that comes back, perhaps in another format, begins the next one.
"""

import argparse
import asyncio
import importlib
import math
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Self

import numpy as np

from clients.caption_formats import METER_FLOOR_DB, Screen
from clients.captioning import Interrupt, add_caption_arguments, caption, run_verb, start_of
from clients.stream import Captions, StreamError
from streaming.protocol import SAMPLE_RATE, ProtocolError

NAME = "captiond mic"

BLOCK_S = 0.05
PATIENCE_S = 2.0  # without sound from the device, or with its errors alone, until it counts as lost
QUEUE_S = 30.0  # most sound that waits for a daemon that does not keep up
BACKOFF_S = (0.5, 1.0, 2.0, 5.0)  # between attempts to reopen; the last one repeats
MOST_CHANNELS = 16  # the limit of `start`
NO_DEVICE = 2  # exit status
NO_MICROPHONE = (
    "this machine has no microphone that can be used. Is one plugged in, and does `arecord -l` list it? Is "
    "the sound service of this user running (`systemctl --user status pipewire`), or, without one, are you "
    "in the group audio? A system service and a container reach no microphone by themselves"
)


class DeviceError(Exception):
    """No usable microphone; the text says why and lists the devices."""


class DeviceLostError(Exception):
    """The microphone stopped delivering."""


@dataclass(frozen=True, slots=True)
class Device:
    """An input device as PortAudio knows it, and the format to open it with."""

    index: int
    name: str
    rate: int
    channels: int


def inputs(sounddevice: Any) -> list[dict[str, Any]]:
    """The description of each input device. Raises DeviceError."""
    try:
        return [info for info in sounddevice.query_devices() if info["max_input_channels"] > 0]
    except sounddevice.PortAudioError as error:
        raise DeviceError(f"the sound system does not answer: {error}") from error


def listing(sounddevice: Any) -> str:
    """The input devices, one a line, the default one with a star. Raises DeviceError."""
    default = sounddevice.default.device[0]
    lines = [
        f"{'*' if info['index'] == default else ' '} {info['index']:3}  {info['name']}"
        f"  ({info['default_samplerate']:.0f} Hz, channels: {info['max_input_channels']})"
        for info in inputs(sounddevice)
    ]
    return "\n".join(lines) or "    (none)"


def choose(sounddevice: Any, wanted: str | None) -> Device:
    """The device of that number, name or part of a name, or the default; and a format that it takes.

    16 kHz mono where the device can, else its own rate, else all its channels. Raises DeviceError.
    """
    info = _find(sounddevice, wanted)
    native, most = int(info["default_samplerate"]), min(info["max_input_channels"], MOST_CHANNELS)
    for rate, channels in ((SAMPLE_RATE, 1), (native, 1), (SAMPLE_RATE, most), (native, most)):
        try:
            sounddevice.check_input_settings(
                device=info["index"], channels=channels, dtype="int16", samplerate=rate
            )
        except sounddevice.PortAudioError:
            continue
        return Device(info["index"], info["name"], rate, channels)
    raise _unusable(
        sounddevice, f"{info['name']} takes neither {SAMPLE_RATE} Hz nor {native} Hz; is it in use?"
    )


def _find(sounddevice: Any, wanted: str | None) -> dict[str, Any]:
    devices = inputs(sounddevice)
    if not devices:
        raise _unusable(sounddevice, NO_MICROPHONE)
    if wanted is None:
        default = sounddevice.default.device[0]
        found = [info for info in devices if info["index"] == default]
        complaint = "there is no default microphone; choose one with --device"
    elif wanted.isdecimal():
        found = [info for info in devices if info["index"] == int(wanted)]
        complaint = f"device {wanted} is no microphone"
    else:
        name = wanted.lower()
        exact = [info for info in devices if info["name"].lower() == name]
        found = exact[:1] or [info for info in devices if name in info["name"].lower()]
        complaint = f"{'several microphones are' if found else 'no microphone is'} called {wanted}"
    if len(found) != 1:
        raise _unusable(sounddevice, complaint)
    return found[0]


def _unusable(sounddevice: Any, complaint: str) -> DeviceError:
    return DeviceError(f"{complaint}\ndevices that record:\n{listing(sounddevice)}")


class Microphone:
    """An open device, from construction to the end of `with`: 16-bit blocks in order.

    tell: takes a line when sound was lost. Raises DeviceError where the device does not open.
    """

    def __init__(self, sounddevice: Any, wanted: str | None, tell: Callable[[str], None]) -> None:
        self.device = choose(sounddevice, wanted)
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        # Blocks, each with PortAudio's error for it; None is the end.
        self._queue: asyncio.Queue[tuple[bytes, str] | None] = asyncio.Queue()
        self._dropped = 0  # bytes, since the last report
        self._failing_s = 0.0  # length of the sound that has come with errors alone
        try:
            self._stream = sounddevice.RawInputStream(
                device=self.device.index,
                samplerate=self.device.rate,
                channels=self.device.channels,
                dtype="int16",
                blocksize=round(self.device.rate * BLOCK_S),
                callback=self._called_back,
            )
            with ExitStack() as undo:
                undo.callback(self._stream.close)
                self._stream.start()
                undo.pop_all()  # the stream runs: `with` closes it
        except sounddevice.PortAudioError as error:
            raise _unusable(sounddevice, f"{self.device.name} does not open: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # May wait for a device that has gone; the session is over by now.
        self._stream.close()

    async def feed(self, captions: Captions, screen: Screen) -> None:
        """Send the device's sound until `finish`. Raises DeviceLostError when none comes."""
        try:
            while (block := await self._next()) is not None:
                screen.level(loudness(block))
                await captions.send(block)
        finally:
            screen.level(None)

    def finish(self) -> None:
        """Stop recording. `feed` goes on until it has sent what was recorded."""
        self._stream.stop()  # waits for the present block, a twentieth of a second
        # The end follows the blocks that the device's thread has put and the loop has not yet taken.
        self._loop.call_soon(self._queue.put_nowait, None)

    async def _next(self) -> bytes | None:
        try:
            item = await asyncio.wait_for(self._queue.get(), PATIENCE_S)
        except TimeoutError:
            raise DeviceLostError(f"{self.device.name} delivers no sound any more") from None
        if self._dropped:
            self._tell(f"{self._seconds(self._dropped):.2f} s lost: the daemon does not keep up")
            self._dropped = 0
        if item is None:
            return None
        block, trouble = item
        if trouble and not self._failing_s:
            self._tell(f"{self.device.name} reports {trouble}")
        self._failing_s = self._failing_s + self._seconds(len(block)) if trouble else 0.0
        if self._failing_s >= PATIENCE_S:
            raise DeviceLostError(f"{self.device.name} reports nothing but {trouble}")
        return block

    def _called_back(self, sound: Any, _frames: int, _time: Any, status: Any) -> None:
        """Pass a block to the loop. PortAudio's thread calls it, so it may not wait."""
        self._loop.call_soon_threadsafe(self._take, bytes(sound), str(status) if status else "")

    def _take(self, block: bytes, trouble: str) -> None:
        if self._queue.qsize() < QUEUE_S / BLOCK_S:
            self._queue.put_nowait((block, trouble))
        else:
            self._dropped += len(block)

    def _seconds(self, size: int) -> float:
        return size / (2 * self.device.channels * self.device.rate)


def loudness(block: bytes) -> float:
    """The level of 16-bit samples in dBFS; silence is the floor of the meter."""
    samples = np.frombuffer(block, np.int16).astype(np.float32) / 32768
    power = float(np.mean(samples**2)) if samples.size else 0.0
    return max(10 * math.log10(power), METER_FLOOR_DB) if power > 0 else METER_FLOOR_DB


async def _listen(sounddevice: Any, args: argparse.Namespace, screen: Screen) -> int:
    """Run session after session until an interrupt, which is success. The exit status."""
    with Interrupt() as interrupt:
        try:
            microphone: Microphone | None = Microphone(sounddevice, args.device, screen.tell)
        except DeviceError as error:
            screen.tell(str(error))
            return NO_DEVICE
        while microphone is not None:
            try:
                await _session(microphone, args, screen, interrupt)
                break
            except DeviceLostError as error:
                screen.tell(f"{error}; waiting for it to come back")
            except (StreamError, ProtocolError) as error:
                screen.tell(str(error))
                return interrupt.status or 1
            # A device's number may change meanwhile; its name stays.
            again = args.device and microphone.device.name
            microphone = await _reopen(sounddevice, again, screen, interrupt)
        return 1 if screen.troubles else 0


async def _session(
    microphone: Microphone, args: argparse.Namespace, screen: Screen, interrupt: Interrupt
) -> None:
    device = microphone.device

    async def feed(captions: Captions) -> None:
        screen.tell(f"listening to {device.name} at {device.rate} Hz; Ctrl-C ends")
        await microphone.feed(captions, screen)

    with microphone:
        start = start_of(args, screen, "s16le", device.rate, device.channels)
        await caption(args.url, start, feed, screen, interrupt, finish=microphone.finish)


async def _reopen(
    sounddevice: Any, wanted: str | None, screen: Screen, interrupt: Interrupt
) -> Microphone | None:
    """Try at growing intervals until the device is back; None if the user interrupts first."""
    for pause in chain(BACKOFF_S, repeat(BACKOFF_S[-1])):
        with suppress(TimeoutError):
            await asyncio.wait_for(interrupt.requested.wait(), pause)
        if interrupt.requested.is_set():
            break
        with suppress(DeviceError):
            _look_again(sounddevice)
            return Microphone(sounddevice, wanted, screen.tell)
    return None


def _look_again(sounddevice: Any) -> None:
    """Have PortAudio list the devices again: it does so only when it is initialised."""
    with suppress(sounddevice.PortAudioError):  # it is not initialised: the last attempt failed
        sounddevice._terminate()  # noqa: SLF001 - sounddevice has no other way to list devices anew
    try:
        sounddevice._initialize()  # noqa: SLF001 - as above
    except sounddevice.PortAudioError as error:
        raise DeviceError(f"the sound system does not answer: {error}") from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("--device", metavar="NAME", help="number, name or part of a name")
    parser.add_argument("--list-devices", action="store_true", help="show what can record, and end")
    add_caption_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Caption until Ctrl-C. 0; 1 if anything failed; 2 without a usable microphone."""
    try:
        sounddevice = importlib.import_module("sounddevice")
    except (ModuleNotFoundError, OSError) as error:  # OSError: sounddevice without PortAudio
        sys.stderr.write(
            f"{NAME}: needs PortAudio ({error}): install the system package libportaudio2, "
            "and captiond[mic]\n"
        )
        return 1
    if args.list_devices:
        try:
            sys.stdout.write(f"{listing(sounddevice)}\n")
        except DeviceError as error:
            sys.stderr.write(f"{NAME}: {error}\n")
            return NO_DEVICE
        return 0

    async def verb(args: argparse.Namespace, screen: Screen) -> int:
        return await _listen(sounddevice, args, screen)

    return run_verb(NAME, args, verb)
