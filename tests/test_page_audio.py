"""Microphones and files that give no sound, and what the page says and saves then."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.support.browser import lines, listen, page_tests, scripted, sound_file, start
from tests.support.page_modules import run
from tests.support.standin import answering, closed, final, partial

pytestmark = page_tests


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        ({"reading": "NotReadableError"}, "Your browser cannot read talk.mp3."),
        ({"reading": "NotFoundError", "size": 4096}, "Your browser cannot read talk.mp3."),
        ({"reading": "NotReadableError", "size": 3 << 30}, "talk.mp3 is too large"),
        ({"reading": "RangeError"}, "talk.mp3 is too large"),
        ({"decoding": "RangeError"}, "talk.mp3 is too large"),
        ({"decoding": "EncodingError"}, "no sound it knows in talk.mp3"),
    ],
)
async def test_a_file_that_cannot_be_read_is_told_from_one_that_is_too_large(
    failure: dict[str, Any], says: str, page: Page
) -> None:
    script = """
        const { decodeFile } = await import("/static/audio/audio-file.js");
        const { OfflineAudioContext } = window;
        const fail = (name) => { if (name) throw new DOMException("", name); };
        window.OfflineAudioContext = class {
            async decodeAudioData() { fail(argument.decoding); }
        };
        const arrayBuffer = async () => fail(argument.reading);
        try {
            await decodeFile({ name: "talk.mp3", size: argument.size ?? 1000, arrayBuffer });
        } catch (problem) {
            return problem.message;
        } finally {
            window.OfflineAudioContext = OfflineAudioContext;
        }
    """
    assert says in await run(page, script, failure)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("NotAllowedError", "The microphone is not allowed here."),
        ("NotFoundError", "There is no microphone."),
        ("NotReadableError", "The microphone does not open."),
        ("OverconstrainedError", "The chosen microphone is gone."),
        ("TypeError", "The microphone does not open. The browser says: TypeError"),
    ],
)
async def test_a_microphone_not_opened_is_explained(name: str, says: str, browser: Browser) -> None:
    deny = f"""
        navigator.mediaDevices.getUserMedia = async () => {{
            throw Object.assign(new Error(), {{ name: "{name}" }});
        }};
    """
    async with scripted(browser, prelude=deny) as (server, page):
        await start(page)
        await expect(page.get_by_role("alert")).to_contain_text(says)
        await expect(page.get_by_role("status")).to_have_text("Ready")
        assert server.peers == []


async def test_unencrypted_the_page_says_what_to_do(browser: Browser, tmp_path: Path) -> None:
    """Browsers give no microphone to a host name over plain HTTP; a file still gets captions."""
    async with scripted(browser, host="captions.test") as (_, page):
        await start(page)
        await expect(page.get_by_role("alert")).to_contain_text("did not come over HTTPS")
        await page.set_input_files("#file", sound_file(tmp_path / "talk.wav", 1))
        await expect(lines(page)).to_have_text(["one"])


async def test_a_microphone_that_is_unplugged_ends_the_session_gently(browser: Browser) -> None:
    script = answering(final("So far."), closed(), early=[partial("so far")])
    keep = """
        const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = async (wish) => (window.stream = await open(wish));
    """
    async with scripted(browser, script, prelude=keep) as (_, page):
        await start(page)
        await expect(page.locator("#live .words")).to_have_text(["so far"])
        await page.evaluate("() => window.stream.getTracks()[0].dispatchEvent(new Event('ended'))")
        await expect(page.get_by_role("alert")).to_contain_text("The microphone is gone.")
        await expect(lines(page)).to_have_text(["So far."])
        await expect(page.get_by_role("status")).to_have_text("Ready")


async def test_what_is_no_sound_is_explained(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "letter.mp3"
    path.write_text("Dear reader")
    async with scripted(browser) as (server, page):
        await page.set_input_files("#file", path)
        await expect(page.get_by_role("alert")).to_contain_text("no sound it knows in letter.mp3")
        assert server.peers == []


async def test_sound_that_the_browser_pauses_goes_on(browser: Browser) -> None:
    """By itself if the browser allows it, as after a phone call; otherwise after a click anywhere."""
    hold = """
        const resume = AudioContext.prototype.resume;
        window.held = false;
        AudioContext.prototype.resume = async function () {
            window.context = this;
            if (window.held) throw new DOMException("a call", "InvalidStateError");
            return resume.call(this);
        };
        const create = AudioContext.prototype.createMediaStreamSource;
        AudioContext.prototype.createMediaStreamSource = function (stream) {
            window.context = this;
            return create.call(this, stream);
        };
    """
    async with scripted(browser, prelude=hold) as (_, page):
        status = page.get_by_role("status")
        await listen(page)
        await page.evaluate("() => window.context.suspend()")
        await page.wait_for_function("() => window.context.state === 'running'")
        await page.evaluate("() => { window.held = true; return window.context.suspend(); }")
        await expect(status).to_have_text("The browser has paused the sound: click anywhere")
        await page.evaluate("() => { window.held = false; }")
        await page.mouse.click(640, 300)
        await expect(status).to_have_text("Listening")


async def test_a_microphone_that_gives_nothing_at_all_is_noticed(browser: Browser) -> None:
    nothing = """
        AudioContext.prototype.createMediaStreamSource = function () { return this.createGain(); };
        const [clock, began] = [Date.now, Date.now()];
        Date.now = () => began + 5 * (clock() - began);
    """
    async with scripted(browser, prelude=nothing) as (_, page):
        await start(page)
        await expect(page.get_by_role("status")).to_have_text("Listening, but no sound comes in")


async def test_a_microphone_that_cannot_be_recorded_is_let_go(browser: Browser) -> None:
    """Otherwise its lamp would stay on."""
    deny = """
        const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = async (wish) => (window.stream = await open(wish));
        window.AudioContext = class {
            constructor() { throw new DOMException("none is left", "NotSupportedError"); }
        };
    """
    async with scripted(browser, prelude=deny) as (_, page):
        await start(page)
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("The microphone does not open. The browser says:")
        assert await page.evaluate("() => window.stream.getTracks()[0].readyState") == "ended"


async def test_a_chosen_microphone_now_gone_gives_way_to_the_usual_one(browser: Browser) -> None:
    """The list shows it, also after the last one is gone."""
    devices = """
        const device = (deviceId, label) => ({ kind: "audioinput", deviceId, label });
        window.devices = [device("desk", "Desk"), device("hat", "Hat")];
        navigator.mediaDevices.enumerateDevices = async () => window.devices;
    """
    unplug = """() => {
        window.devices.pop();
        navigator.mediaDevices.dispatchEvent(new Event("devicechange"));
    }"""
    async with scripted(browser, prelude=devices) as (_, page):
        await expect(page.get_by_role("status")).to_have_text("Ready")
        microphone = page.get_by_label("Microphone")
        offered = microphone.locator("option")
        await expect(offered).to_have_text(["The usual one", "Desk", "Hat"])
        await expect(microphone).to_have_value("")
        await microphone.select_option("Desk")
        await page.evaluate(unplug)
        await expect(offered).to_have_text(["The usual one", "Desk"])
        await expect(microphone).to_have_value("desk")
        await page.evaluate(unplug)
        await expect(offered).to_have_text(["The usual one"])
        await expect(microphone).to_have_value("")
