"""Streams audio to a running daemon and notes when everything happened, for the benchmarks.

A client like any other, over a real websocket: of the daemon it sees the messages and, from the
operating system, the process. What the figures mean is said by who computes them.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
from numpy.typing import NDArray

from clients.stream import Captions, connect
from streaming.protocol import SAMPLE_RATE, Closed, Final, Partial, ServerMessage, Speech, Start

BLOCK = SAMPLE_RATE // 10  # samples: 100 ms
FRAME = SAMPLE_RATE // 100  # samples: 10 ms, for levels
VOICED_DB = 35.0  # a frame is voiced if it lies at most this far below the loudest one

M = TypeVar("M")


@dataclass
class Take:
    """One session: the audio, when each block of it was offered, and what came back when.

    audio: float32 [samples], 16 kHz mono. block: samples sent at a time. sent: for each block the time, on time.monotonic, just
    before it was handed to the socket. late: seconds by which the sender fell behind, at most.
    """

    audio: NDArray[np.float32]
    block: int = BLOCK
    sent: list[float] = field(default_factory=list)
    late: float = 0.0
    heard: list[tuple[float, ServerMessage]] = field(default_factory=list)

    def all(self, kind: type[M]) -> list[tuple[float, M]]:
        """Every message of one type, with its time of arrival."""
        return [(when, message) for when, message in self.heard if isinstance(message, kind)]

    @property
    def finals(self) -> list[Final]:
        """In order."""
        return [final for _, final in self.all(Final)]

    @property
    def text(self) -> str:
        """All finals, joined."""
        return " ".join(final.text.strip() for final in self.finals if final.text.strip())

    def sent_at(self, sample: int) -> float:
        """When the block that holds `sample` was handed to the socket."""
        return self.sent[min(sample // self.block, len(self.sent) - 1)]

    def voiced(self, start: float, end: float) -> tuple[int, int]:
        """First and last voiced sample between two session times, in seconds."""
        first, stop = round(start * SAMPLE_RATE), round(end * SAMPLE_RATE)
        begin, last = voiced_range(self.audio[first:stop])
        return first + begin, first + last

    def ends_of_speech(self) -> dict[int, float]:
        """Arrival of each utterance's `speech` end message."""
        return {m.utterance: when for when, m in self.all(Speech) if m.event == "end"}

    def partials(self) -> dict[int, list[tuple[float, Partial]]]:
        """Partials with their arrival, by utterance."""
        result: dict[int, list[tuple[float, Partial]]] = {}
        for when, message in self.all(Partial):
            result.setdefault(message.utterance, []).append((when, message))
        return result


def voiced_frames(audio: NDArray[np.float32], below_db: float) -> NDArray[np.bool_]:
    """Of each 10 ms, whether it lies at most so far below the loudest: [frames]."""
    frames = audio[: len(audio) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    power = np.square(frames).mean(axis=1)
    return np.asarray(power >= power.max() * 10 ** (-below_db / 10))


def voiced_range(audio: NDArray[np.float32]) -> tuple[int, int]:
    """Index of the first and the last sample in frames that are at most VOICED_DB below the loudest.

    audio: float32 [samples], at least one frame of 10 ms; what is left of a frame at its end counts
    as silence.
    """
    loud = np.flatnonzero(voiced_frames(audio, VOICED_DB))
    return int(loud[0]) * FRAME, int(loud[-1] + 1) * FRAME - 1


async def stream(
    url: str,
    audio: NDArray[np.float32],
    *,
    realtime: bool,
    partials: bool,
    language: str | None = "en",
    words: bool = False,
    block: int = BLOCK,
) -> Take:
    """Run one session to its end.

    audio: float32 [samples], 16 kHz mono. block: samples sent at a time. realtime: a block each tenth of a second by an absolute
    schedule, a late one at once; else as fast as the daemon reads.

    Raises clients.stream.StreamError, and ValueError if the daemon's account of the audio is not
    what was sent.
    """
    take = Take(audio, block)
    start = Start(encoding="f32le", language=language, partials=partials, words=words)
    async with connect(url, start) as captions:
        sender = asyncio.create_task(_send(captions, take, realtime=realtime))
        try:
            async for message in captions:
                take.heard.append((time.monotonic(), message))
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
    ((_, closed),) = take.all(Closed)
    if closed.received != len(audio) or closed.finals != len(take.finals):
        raise ValueError(f"sent {len(audio)} samples, got {len(take.finals)} finals, but {closed}")
    return take


async def _send(captions: Captions, take: Take, *, realtime: bool) -> None:
    samples = take.audio.astype("<f4", copy=False)
    began = time.monotonic()
    for first in range(0, len(samples), take.block):
        due = began + first / SAMPLE_RATE
        if realtime:
            await asyncio.sleep(due - time.monotonic())
            take.late = max(take.late, time.monotonic() - due)
        take.sent.append(time.monotonic())
        await captions.send(samples[first : first + take.block].tobytes())
    await captions.stop()


@contextmanager
def measured_load(pid: int) -> Iterator[dict[str, Any]]:
    """CPU time and memory of a process while the context is open; filled in when it closes.

    peak_rss_mib is the peak of the process's whole life, loading of the model included.
    """
    process = psutil.Process(pid)
    figures: dict[str, Any] = {}
    before, began = process.cpu_times(), time.monotonic()
    yield figures
    after, wall = process.cpu_times(), time.monotonic() - began
    busy = (after.user - before.user) + (after.system - before.system)
    figures["wall_s"] = round(wall, 2)
    figures["cpu_percent_of_one_core"] = round(100 * busy / wall, 2)
    figures["cpu_percent_of_machine"] = round(100 * busy / wall / psutil.cpu_count(), 2)
    figures["rss_mib"] = round(process.memory_info().rss / 2**20)
    figures["peak_rss_mib"] = round(_status_kib(pid, "VmHWM") / 2**10)


def _status_kib(pid: int, key: str) -> int:
    """A figure of /proc/PID/status, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    raise ValueError(f"/proc/{pid}/status has no {key}")
