"""The page in the hands of a user: real Chromium, real sockets, a microphone that plays a file."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.async_api import Browser, expect

from streaming.protocol import Lag, Speech, Stop
from tests.support.browser import lines, needs_chromium, scripted, sound_file, start, stop, visiting
from tests.support.fakes import PATIENCE, ScriptedEngine
from tests.support.standin import Peer, closed, final, partial
from tests.support.wire import serving, speech, until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

CLIPBOARD = "() => navigator.clipboard.readText()"


async def test_a_microphone_is_captioned_by_the_daemon(browser: Browser) -> None:
    """From the first press to the last caption: words that may change, words that are final, Ready again."""
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
        await stop(page)
        await expect(status).to_have_text("Ready")
        await expect(page.locator("#live .words")).to_have_count(0)
        await until(lambda: not daemon.connections)


async def test_every_sample_of_the_microphone_arrives_as_it_is(browser: Browser) -> None:
    """At the browser's own rate and loudness, up to the moment of the stop, and `stop` comes last."""
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await peer.send(closed())
        ended.set()

    async with scripted(browser, script) as (server, page):
        await start(page)
        await expect(page.get_by_role("status")).to_have_text("Listening")
        await until(lambda: len(server.peers[0].audio) > 2 * 48_000 * 2)
        await stop(page)
        await asyncio.wait_for(ended.wait(), PATIENCE)
        (peer,) = server.peers
    assert peer.start.rate in {44_100, 48_000}
    assert peer.start.encoding == "s16le"
    heard, spoken = (np.frombuffer(audio, "<i2") for audio in (peer.audio, speech()[: 2 * 32_000]))
    assert heard.max() == pytest.approx(spoken.max(), rel=0.1)


async def test_a_file_is_captioned_from_its_beginning_to_its_end(
    browser: Browser, tmp_path: Path
) -> None:
    """Decoded by the browser: 16 kHz, mono, all of it; the progress is shown."""
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
    """While it does not read, no more than a mebibyte is under way in the browser, and nothing is lost."""
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
    """The daemon is slow with its finals, and the user will not wait."""

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await peer.websocket.wait_closed()

    async with scripted(browser, script) as (_, page):
        await start(page)
        await expect(page.get_by_role("status")).to_have_text("Listening")
        await stop(page)
        await expect(page.get_by_role("status")).to_have_text("Writing down the rest")
        await page.wait_for_timeout(1_100)  # until it is no double press
        await page.get_by_role("button", name="Drop the rest").click()
        await expect(page.get_by_role("status")).to_have_text("Ready")


@pytest.mark.parametrize("hand", ["mouse", "keyboard"])
async def test_a_double_press_on_stop_drops_nothing(hand: str, browser: Browser) -> None:
    """Though the same button then drops the rest."""
    pressed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await pressed.wait()
        await peer.send(final("Said."), closed())

    async with scripted(browser, script) as (_, page):
        await start(page)
        await expect(page.get_by_role("status")).to_have_text("Listening")
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
    """It never says that it has finished; the session ends all the same."""
    swallow = """
        const post = MessagePort.prototype.postMessage;
        MessagePort.prototype.postMessage = function (message, ...more) {
            if (message !== "finish") post.call(this, message, ...more);
        };
    """
    async with scripted(browser, prelude=swallow) as (_, page):
        await start(page)
        await expect(page.get_by_role("status")).to_have_text("Listening")
        await stop(page)
        await expect(lines(page)).to_have_text(["one"])
        await expect(page.get_by_role("status")).to_have_text("Ready")


async def test_the_screen_stays_on_while_the_page_listens(browser: Browser) -> None:
    """And no longer."""
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


async def two_lines(peer: Peer) -> None:
    """For any sound: two captions."""
    await peer.open()
    await peer.until(Stop)
    await peer.send(
        final("One & <two>."), final("Three.", start=1.0, end=2.25, utterance=1), closed()
    )


async def test_captions_are_copied_and_downloaded(browser: Browser, tmp_path: Path) -> None:
    clipboard = ["clipboard-read", "clipboard-write"]
    async with scripted(browser, two_lines, permissions=clipboard) as (_, page):
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
    """For about two seconds, though the daemon is late and says so all the time."""

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(bytes)
        await peer.send(final("Said."))
        for second in range(1_000):
            await peer.send(Lag(seconds=3.0 + second, shedding="partials"))
            await peer.receive()

    watch = """() => {
        const status = document.getElementById("status");
        window.shown = [];
        const look = () => window.shown.push([status.textContent, performance.now()]);
        new MutationObserver(look).observe(status, { childList: true });
    }"""
    clipboard = ["clipboard-read", "clipboard-write"]
    async with scripted(browser, script, permissions=clipboard) as (_, page):
        await start(page)
        await expect(lines(page)).to_have_text(["Said."])
        await expect(page.get_by_role("status")).to_have_text("Behind")
        await page.evaluate(watch)
        await page.get_by_role("button", name="Copy").click()
        await page.wait_for_function("() => window.shown.length === 2")
        (first, begun), (second, ended) = await page.evaluate("() => window.shown")
    assert (first, second) == ("Copied", "Behind")
    assert ended - begun > 1_500


async def test_captions_are_not_dropped_without_a_question(
    browser: Browser, tmp_path: Path
) -> None:
    """Neither by another file, nor by Clear; those that were downloaded go at once."""
    sound = sound_file(tmp_path / "talk.wav", 1)
    async with scripted(browser, two_lines) as (server, page):
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


async def test_one_microphone_session_follows_another_in_time(browser: Browser) -> None:
    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await peer.send(final("Said.", start=0.0, end=0.1), closed())

    async with scripted(browser, script) as (server, page):
        for count in (1, 2):
            await start(page)
            await until(lambda: len(server.peers) == count and len(server.peers[-1].frames) > 30)  # noqa: B023
            await stop(page)
            await expect(lines(page)).to_have_count(count)
        await expect(page.locator("#log .time")).to_have_text(["0:00", "0:01"])


async def test_the_keyboard_is_enough(browser: Browser) -> None:
    """The first Tab leads to the microphone; Enter starts and stops it; the controls follow in order."""

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await peer.send(final("Said."), closed())

    async with scripted(browser, script) as (_, page):
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
    """Words that change would interrupt each other."""

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
