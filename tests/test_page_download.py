"""Captions that a user copies, downloads or clears."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from streaming.protocol import Lag
from tests.support.browser import held_timers, lines, page_tests, scripted, sound_file, start
from tests.support.standin import Peer, answering, closed, final
from tests.support.wire import until

pytestmark = page_tests

CLIPBOARD = "() => navigator.clipboard.readText()"
TWO_LINES = answering(
    final("One & <two>."), final("Three.", start=1.0, end=2.25, utterance=1), closed()
)


async def test_captions_are_copied_and_downloaded(browser: Browser, tmp_path: Path) -> None:
    clipboard = ["clipboard-read", "clipboard-write"]
    async with scripted(browser, TWO_LINES, permissions=clipboard) as (_, page):
        assert await page.get_by_role("group", name="Keep the captions").count() == 0
        await page.set_input_files("#file", sound_file(tmp_path / "talk.wav", 1))
        await expect(lines(page)).to_have_count(2)
        await page.get_by_role("button", name="Copy").click()
        await expect(page.get_by_role("status")).to_have_text("Copied")
        assert await page.evaluate(CLIPBOARD) == "One & <two>.\nThree.\n"
        texts = {}
        for button in ("text", "SRT subtitles", "WebVTT subtitles"):
            async with page.expect_download() as download:
                await page.get_by_role("button", name=f"Download as {button}").click()
            path = await (await download.value).path()
            name = (await download.value).suggested_filename
            assert re.fullmatch(r"captions-\d{4}-\d\d-\d\d-\d{4}\.(txt|srt|vtt)", name)
            texts[name[-3:]] = path.read_text("utf-8")
    assert texts == {
        "txt": "One & <two>.\nThree.\n",
        "srt": "1\n00:00:00,000 --> 00:00:01,000\nOne & <two>.\n\n"
        "2\n00:00:01,000 --> 00:00:02,250\nThree.\n\n",
        "vtt": "WEBVTT\n\n1\n00:00:00.000 --> 00:00:01.000\nOne &amp; &lt;two&gt;.\n\n"
        "2\n00:00:01.000 --> 00:00:02.250\nThree.\n\n",
    }


async def test_that_they_are_copied_can_be_read_while_more_is_said(browser: Browser) -> None:
    """For two seconds, though the daemon reports its lag all the time."""

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(bytes)
        await peer.send(final("Said."))
        for second in range(1_000):
            await peer.send(Lag(seconds=3.0 + second, shedding="partials"))
            await peer.receive()

    count_messages = """
        const Original = WebSocket;
        window.messages = 0;
        window.WebSocket = class extends Original {
            constructor(...options) {
                super(...options);
                this.addEventListener("message", () => { window.messages += 1; });
            }
        };
    """
    prelude = count_messages + held_timers(2_000)
    clipboard = ["clipboard-read", "clipboard-write"]
    async with scripted(browser, script, permissions=clipboard, prelude=prelude) as (_, page):
        status = page.get_by_role("status")
        await start(page)
        await expect(lines(page)).to_have_text(["Said."])
        await expect(status).to_have_text("Behind")
        await page.get_by_role("button", name="Copy").click()
        await expect(status).to_have_text("Copied")
        before = await page.evaluate("() => window.messages")
        await page.wait_for_function("(before) => window.messages > before + 5", arg=before)
        assert await status.inner_text() == "Copied"
        await page.evaluate("() => window.runTimers()")
        await expect(status).to_have_text("Behind")


async def test_captions_are_not_dropped_unasked(browser: Browser, tmp_path: Path) -> None:
    """Another file asks, and so does Clear. Captions that were downloaded are removed at once."""
    sound = sound_file(tmp_path / "talk.wav", 1)
    async with scripted(browser, TWO_LINES) as (server, page):
        await page.set_input_files("#file", sound)
        await expect(lines(page)).to_have_count(2)
        await page.set_input_files("#file", sound)
        dialog = page.get_by_role("dialog", name="Drop these captions?")
        await expect(dialog.get_by_role("button", name="Keep them")).to_be_focused()
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Clear").click()
        await dialog.get_by_role("button", name="Keep them").click()
        await expect(lines(page)).to_have_count(2)
        await page.get_by_role("button", name="Clear").click()
        await dialog.get_by_role("button", name="Drop them").click()
        await expect(lines(page)).to_have_count(0)
        await page.set_input_files("#file", sound)
        await expect(lines(page)).to_have_count(2)
        async with page.expect_download():
            await page.get_by_role("button", name="Download as text").click()
        await page.set_input_files("#file", sound)
        await until(lambda: len(server.peers) == 3)
        await expect(lines(page)).to_have_count(2)


@pytest.mark.parametrize(
    ("host", "deny"),
    [
        ("127.0.0.1", "navigator.clipboard.writeText = async () => { throw new Error(); };"),
        ("captions.test", "document.execCommand = () => false;"),
    ],
    ids=["clipboard", "without encryption"],
)
async def test_what_could_not_be_copied_counts_as_lost(
    host: str, deny: str, browser: Browser, tmp_path: Path
) -> None:
    async with scripted(browser, host=host, prelude=deny) as (_, page):
        await page.set_input_files("#file", sound_file(tmp_path / "talk.wav", 1))
        await expect(lines(page)).to_have_text(["one"])
        await expect(page.get_by_role("status")).to_have_text("Ready")
        for _ in range(2):
            await page.get_by_role("button", name="Copy").click()
            alert = page.get_by_role("alert")
            await expect(alert).to_contain_text("Your browser does not let this page copy.")
            await page.get_by_role("button", name="Dismiss").click()
            await expect(alert).to_be_hidden()
        await expect(page.get_by_role("status")).to_have_text("Ready")
        await page.get_by_role("button", name="Clear").click()
        await expect(page.get_by_role("dialog", name="Drop these captions?")).to_be_visible()
