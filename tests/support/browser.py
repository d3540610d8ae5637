"""Debian's Chromium for tests of the page: headless, with a microphone that plays a file.

A visit fails the test if the page throws, logs an error or a warning, or contacts another host.
"""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile
from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    ViewportSize,
    async_playwright,
    expect,
)
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from daemon.net.static_files import Page as Files
from tests.support.standin import Gate, Script, Standin, obedient, standin
from tests.support.wire import speech

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium (apt install chromium)")

page_tests = [
    needs_chromium,
    pytest.mark.asyncio(loop_scope="session"),  # that of the browser
    pytest.mark.timeout(300),
]

PATIENCE_MS = 60_000  # far more than anything takes; a test that waits longer has failed
WIDE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
FILES = Files()

expect.set_options(timeout=PATIENCE_MS)

BROKEN = (
    "WebSocket connection to",
    "Failed to load resource",
)  # Chromium logs these of a lost service


def sound_file(path: Path, seconds: float, silence: float = 1.0) -> Path:
    """A WAV file: the beginning of the sample, then silence. The fake microphone plays it in a loop."""
    samples = np.frombuffer(speech(), "<i2")[: round(seconds * 16_000)]
    soundfile.write(path, np.append(samples, np.zeros(round(silence * 16_000), "<i2")), 16_000)
    return path


@asynccontextmanager
async def chromium(sound: Path, *flags: str) -> AsyncIterator[Browser]:
    """A browser whose microphone plays `sound` to every page that asks."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
                f"--use-file-for-fake-audio-capture={sound}",
                *flags,
            ],
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def visiting(
    browser: Browser, url: str, *, expected: Sequence[str] = (), prelude: str = "", **options: Any
) -> AsyncIterator[Page]:
    """A new visitor at `url`. expected: parts of messages that Chromium may log. prelude: runs before the page's scripts."""
    faults: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not any(
            one in message.text for one in expected
        ):
            faults.append(message.text)

    def on_error(error: Error) -> None:
        faults.append(str(error))

    options = {"viewport": WIDE, "locale": "en-GB"} | options
    async with await browser.new_context(**options) as context:
        page = await context.new_page()
        page.on("console", on_console)
        page.on("pageerror", on_error)
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.set_default_timeout(PATIENCE_MS)
        hosts: set[str] = set()
        await page.add_init_script(prelude)
        await page.goto(url)
        yield page
        assert faults == []
        assert hosts <= {urlsplit(url).netloc, ""}  # a download has an address without a host


@asynccontextmanager
async def scripted(
    browser: Browser,
    script: Script = obedient,
    *,
    refuse: Gate | None = None,
    path: str = "/",
    host: str = "127.0.0.1",
    **options: Any,
) -> AsyncIterator[tuple[Standin, Page]]:
    """A visit to a daemon that follows `script`. refuse: its answer to a handshake; options: of `visiting`."""
    async with standin(script, gate=page_gate(refuse)) as server:
        url = page_of(server.url, path).replace("127.0.0.1", host)
        async with visiting(browser, url, **options) as page:
            yield server, page


def page_of(url: str, path: str = "/") -> str:
    """The address of the page, where `url` is that of the websocket."""
    return url.replace("ws", "http", 1) + path


async def start(page: Page) -> None:
    """Let the page listen."""
    await page.get_by_role("button", name="Start listening").click()


async def stop(page: Page) -> None:
    """Let it stop."""
    await page.get_by_role("button", name="Stop").click()


async def listen(page: Page) -> None:
    """Start, and wait until the page listens."""
    await start(page)
    await expect(page.get_by_role("status")).to_have_text("Listening")


async def end(page: Page) -> None:
    """Stop, and wait until the page is ready again."""
    await stop(page)
    await expect(page.get_by_role("status")).to_have_text("Ready")


def lines(page: Page) -> Locator:
    """The captions that are final."""
    return page.locator("#log .words")


def held_timers(milliseconds: int) -> str:
    """A prelude: the page's timers of this length run when the test calls `window.runTimers()`."""
    return f"""
        const [later, clear, held] = [setTimeout, clearTimeout, new Map()];
        let last = 0;
        window.setTimeout = (task, ms) => {{
            if (ms !== {milliseconds}) return later(task, ms);
            held.set(--last, task);
            return last;
        }};
        window.clearTimeout = (id) => held.delete(id) || clear(id);
        window.runTimers = () => {{
            for (const [id, task] of held) {{
                held.delete(id);
                task();
            }}
        }};
    """


def page_gate(refuse: Gate | None = None) -> Gate:
    """What a scripted daemon answers to plain HTTP: the page's files. `refuse` may refuse websockets."""

    def gate(connection: ServerConnection, request: Request) -> Response | None:
        refusal = refuse(connection, request) if refuse is not None else None
        if request.headers.get("Upgrade") == "websocket":
            return refusal
        path = urlsplit(request.path).path
        if path == "/readyz":
            return connection.respond(HTTPStatus.OK, "{}\n")
        file = FILES.answer(path, request)
        return file or refusal or connection.respond(HTTPStatus.UPGRADE_REQUIRED, "a websocket\n")

    return gate
