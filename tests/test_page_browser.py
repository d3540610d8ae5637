"""The page in the hands of a user: real Chromium, real sockets, a microphone that plays a file."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.async_api import Browser, expect

from streaming.protocol import Speech, Stop
from tests.support.browser import (
    end,
    lines,
    listen,
    page_tests,
    scripted,
    sound_file,
    start,
    stop,
    visiting,
)
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.standin import Peer, answering, closed, final, partial
from tests.support.wire import health, serving, speech, until

pytestmark = page_tests


async def test_a_microphone_is_captioned_by_the_daemon(browser: Browser) -> None:
    engine = ScriptedEngine(text=lambda request: f"heard {len(request.audio) // 16_000} s")
    async with (
        serving(engine) as daemon,
        visiting(browser, f"http://127.0.0.1:{daemon.port}/") as page,
    ):
        status = page.get_by_role("status")
        await expect(status).to_have_text("Ready")
        await start(page)
        await expect(page.locator("#live .tentative").first).to_contain_text("s")
        await expect(status).to_have_text("Listening")
        await expect(lines(page).first).to_have_text(re.compile(r"heard \d s"))
        assert engine.admitted[0].language == "en"
        await expect(page.get_by_role("meter")).not_to_have_attribute("aria-valuenow", "-60")
        await end(page)
        await expect(page.locator("#live .words")).to_have_count(0)
        while (await health(daemon))[1]["sessions"]:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.02)


async def test_every_sample_of_the_microphone_arrives_as_it_is(browser: Browser) -> None:
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await peer.send(closed())
        ended.set()

    async with scripted(browser, script) as (server, page):
        await listen(page)
        await until(lambda: len(server.peers[0].audio) > 2 * 48_000 * 2)
        await stop(page)
        await asyncio.wait_for(ended.wait(), PATIENCE)
        (peer,) = server.peers
    assert peer.start.rate in {44_100, 48_000}
    assert peer.start.encoding == "s16le"
    heard, spoken = (np.frombuffer(audio, "<i2") for audio in (peer.audio, speech()[: 2 * 32_000]))
    assert heard.max() == pytest.approx(spoken.max(), rel=0.1)


async def test_a_file_is_captioned_from_start_to_end(browser: Browser, tmp_path: Path) -> None:
    path = sound_file(tmp_path / "talk.wav", 20)
    shown = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await peer.send(final("Half.", end=10.5))
        await shown.wait()
        await peer.send(final("All.", start=10.5, end=21.0, utterance=1), closed())

    async with scripted(browser, script) as (server, page):
        await page.get_by_label("Language").select_option("German")
        await page.get_by_label("Temperature").fill("0.4")
        await page.set_input_files("#file", path)
        await expect(page.get_by_role("status")).to_have_text("Reading")  # and no number, out loud
        await expect(page.locator("#figure")).to_have_text("50 %")
        shown.set()
        await expect(lines(page)).to_have_text(["Half.", "All."])
        await expect(page.get_by_role("status")).to_have_text("Ready")
        (peer,) = server.peers
    assert (peer.start.rate, peer.start.language, peer.start.temperature) == (16_000, "de", 0.4)
    assert abs(len(peer.audio) // 2 - 21 * 16_000) <= 1


async def test_a_slow_daemon_is_not_flooded(browser: Browser, tmp_path: Path) -> None:
    """While it does not read, the browser queues a mebibyte at most, and no sample is lost."""
    path = sound_file(tmp_path / "long.wav", 30, silence=270)
    going = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.open()
        await going.wait()
        await peer.until(Stop)
        await peer.send(closed())

    script_of_sockets = """
        const Original = WebSocket;
        window.most = 0;
        window.WebSocket = class extends Original {
            send(data) { super.send(data); window.most = Math.max(window.most, this.bufferedAmount); }
        };
    """
    async with scripted(browser, script, prelude=script_of_sockets) as (server, page):
        await page.set_input_files("#file", path)
        await page.wait_for_function("() => window.most > 1 << 20")
        going.set()
        await expect(page.get_by_role("status")).to_have_text("Ready")
        assert await page.evaluate("() => window.most") <= (1 << 20) + 32_768
        (peer,) = server.peers
    assert abs(len(peer.audio) // 2 - 300 * 16_000) <= 1


async def test_a_second_stop_drops_the_rest(browser: Browser) -> None:
    """The daemon is slow with its finals, and the user does not wait."""
    clock = "const clock = Date.now; window.ahead = 0; Date.now = () => clock() + window.ahead;"

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await peer.websocket.wait_closed()

    async with scripted(browser, script, prelude=clock) as (_, page):
        await listen(page)
        await stop(page)
        await expect(page.get_by_role("status")).to_have_text("Writing down the rest")
        await page.evaluate("() => { window.ahead = 1_100; }")  # too late for a double press
        await page.get_by_role("button", name="Drop the rest").click()
        await expect(page.get_by_role("status")).to_have_text("Ready")


@pytest.mark.parametrize("hand", ["mouse", "keyboard"])
async def test_a_double_press_on_stop_drops_nothing(hand: str, browser: Browser) -> None:
    """The first press turns Stop into Drop the rest."""
    pressed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await pressed.wait()
        await peer.send(final("Said."), closed())

    async with scripted(browser, script) as (_, page):
        await listen(page)
        button = page.get_by_role("button", name="Stop")
        if hand == "mouse":
            await button.dblclick()
        else:
            await button.evaluate("(button) => { button.click(); button.click(); }")
        await expect(page.get_by_role("status")).to_have_text("Writing down the rest")
        pressed.set()
        await expect(lines(page)).to_have_text(["Said."])
        await expect(page.get_by_role("status")).to_have_text("Ready")


async def test_an_audio_thread_that_has_stopped_holds_nothing_up(browser: Browser) -> None:
    """It never confirms `finish`; the session still ends."""
    swallow = """
        const post = MessagePort.prototype.postMessage;
        MessagePort.prototype.postMessage = function (message, ...more) {
            if (message !== "finish") post.call(this, message, ...more);
        };
    """
    async with scripted(browser, prelude=swallow) as (_, page):
        await listen(page)
        await stop(page)
        await expect(lines(page)).to_have_text(["one"])
        await expect(page.get_by_role("status")).to_have_text("Ready")


async def test_the_screen_stays_on_while_the_page_listens(browser: Browser) -> None:
    """The page releases its wake lock afterwards."""
    count = """
        window.locks = 0;
        const release = async () => { window.locks -= 1; };
        navigator.wakeLock.request = async () => { window.locks += 1; return { release }; };
    """
    async with scripted(browser, prelude=count) as (_, page):
        await start(page)
        await page.wait_for_function("() => window.locks === 1")
        await expect(page.get_by_role("status")).to_have_text("Listening")
        await stop(page)
        await page.wait_for_function("() => window.locks === 0")


async def test_one_microphone_session_follows_another_in_time(browser: Browser) -> None:
    script = answering(final("Said.", start=0.0, end=0.1), closed())
    async with scripted(browser, script) as (server, page):
        for count in (1, 2):
            await start(page)
            await until(lambda: len(server.peers) == count and len(server.peers[-1].frames) > 30)  # noqa: B023
            await stop(page)
            await expect(lines(page)).to_have_count(count)
        first = server.peers[0]
        minutes, seconds = divmod(len(first.audio) // 2 // first.start.rate, 60)
        await expect(page.locator("#log .time")).to_have_text(["0:00", f"{minutes}:{seconds:02}"])


async def test_the_keyboard_is_enough(browser: Browser) -> None:
    """The first Tab leads to the microphone; Enter starts and stops it; the controls follow in order."""
    async with scripted(browser, answering(final("Said."), closed())) as (_, page):
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status")).to_have_text("Listening")
        await page.keyboard.press("Enter")
        await expect(lines(page)).to_have_text(["Said."])
        await expect(page.get_by_role("status")).to_have_text("Ready")
        names = []
        for _ in range(4):
            await page.keyboard.press("Tab")
            names.append(await page.evaluate("() => document.activeElement.id"))
        assert names == ["open", "language", "microphone", "temperature"]


async def test_screen_readers_hear_finals_and_no_partial(browser: Browser) -> None:
    """Partials would interrupt each other."""

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.send(Speech(event="start", utterance=0, at=0.0), partial("Some"))
        await peer.until(Stop)
        await peer.send(final("Something."), closed())

    async with scripted(browser, script) as (_, page):
        log = page.get_by_role("log", name="Captions")
        await start(page)
        await expect(page.locator("#live .words")).to_have_text(["Some"])
        await expect(log).to_be_empty()
        spoken = page.locator("#live .words").locator("xpath=ancestor::*[@aria-live or @role]")
        assert await spoken.count() == 0
        await stop(page)
        await expect(log).to_contain_text("Something.")
        assert await log.locator(".words").get_attribute("lang") == "en"


async def test_the_newest_caption_stays_in_sight_unless_one_reads_back(
    browser: Browser, tmp_path: Path
) -> None:
    more = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        many = [final(f"Line {number}.", utterance=number) for number in range(60)]
        await peer.send(*many)
        await more.wait()
        await peer.send(final("The last line.", utterance=60), closed())

    async with scripted(browser, script) as (_, page):
        await page.set_input_files("#file", sound_file(tmp_path / "talk.wav", 1))
        await expect(lines(page).last).to_have_text("Line 59.")
        await expect(lines(page).last).to_be_in_viewport()
        latest = page.get_by_role("button", name="Latest captions")
        await expect(latest).to_be_hidden()
        await page.mouse.wheel(0, -2000)
        await expect(latest).to_be_visible()
        more.set()
        await expect(lines(page).last).to_have_text("The last line.")
        await expect(lines(page).last).not_to_be_in_viewport()
        await latest.click()
        await expect(lines(page).last).to_be_in_viewport()
        await expect(latest).to_be_hidden()
