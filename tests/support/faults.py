"""Faults to a running daemon, each while three other sessions talk: what they hear must not change.

Used by tests/test_faults.py with a scripted recogniser, and by tests/benchmarks/bench_robust.py with a real one.
"""

import asyncio
import math
import resource
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from daemon.config import Config, ConfigError
from daemon.monitoring.metrics import total
from daemon.monitoring.systemd_notify import Notifier
from daemon.recognition.request_queue import Result
from daemon.recognition.scheduler import Engine
from daemon.serve import reload
from daemon.server import Daemon
from model.engine.requests import Request
from streaming.protocol import Closed, Error, Final, Flush, Ready, Start, Stop
from tests.support.certificates import Certificates, certificates
from tests.support.wire import FRAME, Client, frames, sentence, speech, until

NEIGHBOURS = 3
MALFORMED = 10_000
START = Start(partials=False, language="en")


class Breakable:
    """An engine that fails or hangs when it is told to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._going = threading.Event()
        self._going.set()
        self.fails = 0
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def admit(self, request: Request) -> None:
        self._engine.admit(request)

    def cancel(self, request: Request) -> None:
        self._engine.cancel(request)

    def step(self) -> list[Result]:
        self._going.wait()
        if self.fails:
            self.fails -= 1
            self.failed += 1
            raise RuntimeError("a fault of the decoder, on purpose")
        return self._engine.step()

    def hang(self) -> None:
        self._going.clear()

    def go_on(self) -> None:
        self._going.set()


@dataclass(frozen=True)
class Stage:
    """A running daemon, what it decodes with, and its certificates and transcripts."""

    daemon: Daemon
    engine: Breakable
    config: Config
    certificates: Certificates
    audio: bytes

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        async with connect(
            self.daemon.address, ssl=self.certificates.client(), compression=None, **options
        ) as socket:
            yield Client(socket)

    async def talk(self) -> list[str]:
        """A whole session; what it was told."""
        async with self.client() as client:
            await client.say(START)
            for frame in frames(self.audio, 10 * FRAME):
                await client.say(frame)
                await asyncio.sleep(0.001)  # others have their turn, as in life
            await client.say(Stop())
            await client.hear_all()
            return [final.text for final in client.all(Final)]


@asynccontextmanager
async def stage(
    engine: Callable[[], Engine],
    folder: Path,
    audio: bytes | None = None,
    stalled_after_seconds: float = 1.0,
) -> AsyncIterator[Stage]:
    """A daemon with TLS and transcripts, whose engine can be broken.

    stalled_after_seconds: longer than any round of the engine.
    """
    made = certificates(folder)
    config = Config(
        port=0,
        tls_certificate=made.certificate,
        tls_key=made.key,
        transcripts_dir=str(folder / "transcripts"),
        max_sessions=64,
        stalled_after_seconds=stalled_after_seconds,
    )
    broken: list[Breakable] = []

    def load() -> Engine:
        broken.append(Breakable(engine()))
        return broken[0]

    daemon = Daemon(config, load)
    await daemon.start()
    running = asyncio.create_task(daemon.run())
    try:
        await asyncio.wait(
            [running, asyncio.create_task(daemon.ready.wait())], return_when="FIRST_COMPLETED"
        )
        yield Stage(daemon, broken[0], config, made, audio or speech())
    finally:
        for one in broken:
            one.go_on()
        if daemon.status != "stopping":
            daemon.stop()
        await running


async def killed(stage: Stage) -> dict[str, Any]:
    """Clients that are killed in mid-word."""
    for _ in range(5):
        async with stage.client() as client:
            await client.say(START, stage.audio[:100_000])
            client.socket.transport.abort()
    return {"clients": 5}


async def half_open(stage: Stage) -> dict[str, Any]:
    """Connections that say nothing, say half a request, or have gone without a word."""
    silent = [await asyncio.open_connection("127.0.0.1", stage.daemon.port) for _ in range(20)]
    for _, writer in silent[:10]:
        writer.write(b"GET / HT")
    async with stage.client() as client:
        await client.say(START, sentence())
        await client.receive_until(Ready)
        client.socket.transport.pause_reading()
        await asyncio.sleep(0.2)
        client.socket.transport.abort()
    for _, writer in silent:
        writer.close()
    return {"connections": len(silent) + 1}


async def never_reads(stage: Stage) -> dict[str, Any]:
    """A client that talks on and takes nothing of what it is told."""
    async with stage.client(max_queue=1) as client:
        client.socket.transport.pause_reading()

        async def shout() -> None:
            with suppress(ConnectionClosed):
                await client.say(START)
                for _ in range(30):
                    await client.say(sentence()[: 80 * FRAME], Flush())

        with suppress(TimeoutError):
            await asyncio.wait_for(shout(), 2.0)
        client.socket.transport.abort()
    return {"utterances_at_most": 30}


async def malformed(stage: Stage) -> dict[str, Any]:
    """Frames that are no message, from as many clients as it takes: ten errors end a session."""
    sent = clients = 0
    bad = ['{"type": "strat"}', "{", "[]", '{"type": "start", "rate": -1}', "\x00" * 50]
    while sent < MALFORMED:
        clients += 1
        async with stage.client() as client:
            with suppress(ConnectionClosed):
                for text in bad * 3:
                    await client.say(text)
                    sent += 1
            await client.hang_up()
            assert client.all(Error)
    return {"frames": sent, "clients": clients}


async def oversized(stage: Stage) -> dict[str, Any]:
    """Frames above the limit."""
    codes = set()
    for _ in range(5):
        async with stage.client(max_size=None) as client:
            with suppress(ConnectionClosed):
                await client.say(START, bytes(stage.config.max_frame_bytes + 1))
            codes.add((await client.hang_up())[0])
    assert codes <= {1009, 1006}, codes
    return {"frames": 5, "codes": sorted(codes, key=str)}


async def decoder_exception(stage: Stage) -> dict[str, Any]:
    """A round of the model that raises: what was in it is tried again."""
    stage.engine.fails = 1
    await until(lambda: stage.engine.fails == 0)
    return {"rounds_failed": stage.engine.failed}


async def stuck_decoder(stage: Stage) -> dict[str, Any]:
    """A model that does not come back for a while; liveness must say so."""
    stage.engine.hang()
    await until(lambda: stage.daemon.status == "stalled")
    live = stage.daemon.health.livez().status
    stage.engine.go_on()
    await until(lambda: stage.daemon.status == "ok")
    return {"livez_meanwhile": int(live), "livez_after": int(stage.daemon.health.livez().status)}


async def broken_reload(stage: Stage) -> dict[str, Any]:
    """SIGHUP with a file that is wrong."""

    def read() -> Config:
        raise ConfigError("captiond.toml is not TOML")

    for _ in range(20):
        reload(stage.daemon, Notifier(), read)
    return {"reloads": 20}


async def certificate_swap(stage: Stage) -> dict[str, Any]:
    """A new certificate, then a broken one."""
    for _ in range(5):
        stage.certificates.renew()
        stage.daemon.reload(stage.config)
    stage.certificates.spoil()
    with suppress(ConfigError):
        stage.daemon.reload(stage.config)
    async with stage.client() as client:
        await client.say(START)
        await client.receive_until(Ready)
    return {"swaps": 5, "broken": 1}


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes: writes fail in the middle, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def disk_full(stage: Stage) -> dict[str, Any]:
    """Transcripts that cannot be written for a while."""
    errors = stage.daemon.metrics.transcript_errors
    before = total(errors)
    with full_disk(300):
        await until(lambda: total(errors) > before)
    return {"writes_failed": int(total(errors) - before)}


async def nothing(stage: Stage) -> dict[str, Any]:
    """The neighbours alone, for comparison."""
    return {"daemon": stage.daemon.status}


FAULTS: dict[str, Callable[[Stage], Awaitable[dict[str, Any]]]] = {
    "none": nothing,
    "client_killed": killed,
    "half_open": half_open,
    "never_reads": never_reads,
    "malformed": malformed,
    "oversized": oversized,
    "decoder_exception": decoder_exception,
    "decoder_stuck": stuck_decoder,
    "reload_broken": broken_reload,
    "certificate_swap": certificate_swap,
    "disk_full": disk_full,
}


async def inflict(stage: Stage, fault: str, wanted: list[str]) -> dict[str, Any]:
    """The fault in the middle of three sessions; what it did, and whether they heard what is `wanted`."""
    talking = [asyncio.create_task(stage.talk()) for _ in range(NEIGHBOURS)]
    await until(lambda: stage.daemon.health.sessions >= NEIGHBOURS)
    facts = await FAULTS[fault](stage)
    heard = await asyncio.gather(*talking)
    return {**facts, "neighbours_unchanged": sum(texts == wanted for texts in heard)}


async def stopped_in_mid_word(stage: Stage) -> dict[str, Any]:
    """SIGTERM while everybody speaks: every utterance that was begun has its final, then 1001."""
    delivered = promised = 0
    begun = stage.audio[: len(stage.audio) * 2 // 3]
    audio = stage.daemon.metrics.audio  # seconds
    wanted = total(audio) + NEIGHBOURS * (len(begun) // 2) / 16_000
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(stage.client()) for _ in range(NEIGHBOURS)]
        for client in clients:
            await client.say(START, begun)
        await until(lambda: math.isclose(total(audio), wanted))
        stage.daemon.stop()
        for client in clients:
            assert (await client.hang_up())[0] == 1001
            (closed,) = client.all(Closed)
            promised += closed.finals
            delivered += len(client.all(Final))
    return {"sessions": NEIGHBOURS, "finals_promised": promised, "finals_delivered": delivered}
