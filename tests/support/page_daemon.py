"""A daemon with genuine weights in this event loop, for what looks at the page."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from daemon.config import Config
from daemon.server import Daemon
from model.engine.build import build
from model.engine.engine import Engine


@asynccontextmanager
async def whisper_daemon(model: str = "base", threads: int = 1) -> AsyncIterator[Daemon]:
    """Ready, on a free port."""

    def load() -> Engine:
        return build(model, device="cpu", threads=threads, slots=2)

    daemon = Daemon(Config(port=0), load)
    await daemon.start()
    running = asyncio.create_task(daemon.run())
    try:
        ready = asyncio.create_task(daemon.ready.wait())
        await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            ready.cancel()
            await running
        yield daemon
    finally:
        daemon.stop()
        await running
