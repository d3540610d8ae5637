"""What can go wrong for a user of the page, and what the page says and saves then."""

from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, expect
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from streaming.protocol import Error, Lag, Resume, Start, Stop
from tests.support.browser import (
    BROKEN,
    lines,
    needs_chromium,
    page_gate,
    page_of,
    scripted,
    sound_file,
    start,
    stop,
    visiting,
)
from tests.support.fakes import ScriptedEngine
from tests.support.standin import Peer, closed, final, partial, ready, standin
from tests.support.wire import serving, until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]


async def test_a_lost_connection_loses_no_word_and_doubles_none(
    browser: Browser, tmp_path: Path
) -> None:
    """The second session hears what had no final, and its captions go on in time: a daemon that ends
    a session by itself may not have come to the `stop`, nor to all the sound before it.
    """
    path = sound_file(tmp_path / "talk.wav", 4, silence=0)
    number = 0

    async def script(peer: Peer) -> None:
        nonlocal number
        number += 1
        await peer.open()
        if number == 1:
            await peer.until(Stop)
            await peer.send(final("One.", end=1.5), partial("two th", utterance=1))
            stops = Error(code="shutting_down", message="the daemon stops", fatal=True)
            await peer.send(stops, closed())
            await peer.websocket.close(1001)
            return
        await peer.until(Stop)
        await peer.send(final("Two three.", start=0.25, end=2.5), closed())

    async with scripted(browser, script) as (server, page):
        await page.set_input_files("#file", path)
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("The service is stopping or starts anew.")
        await expect(page.get_by_role("status")).to_have_text("Waiting for the service")
        await expect(page.locator("#live .words")).to_have_text(["two th"])
        await expect(page.get_by_role("status")).to_have_text("Ready")
        await expect(alert).to_be_hidden()
        await expect(lines(page)).to_have_text(["One.", "Two three."])
        await expect(page.locator("#log .time")).to_have_text(["0:00", "0:01"])
        first, second = server.peers
    whole = first.audio
    assert second.audio == whole[round(1.5 * 16_000) * 2 :]


async def test_a_session_outlives_its_connection(browser: Browser, tmp_path: Path) -> None:
    """Cut three times, it is resumed three times; the captions are those of an unbroken connection."""
    sound = sound_file(tmp_path / "talk.wav", 20)
    engine = ScriptedEngine()
    async with (
        serving(engine, resume_seconds=60.0) as daemon,
        visiting(browser, f"http://127.0.0.1:{daemon.port}/", language_hint=BROKEN) as page,
    ):
        status, totals = page.get_by_role("status"), daemon._metrics.totals
        await page.set_input_files("#file", sound)
        await until(lambda: totals.ended.total() == 1)  # it says Ready before it begins, too
        await expect(status).to_have_text("Ready")
        unbroken = await page.locator("#log").inner_text()
        await page.get_by_role("button", name="Clear").click()
        await page.get_by_role("button", name="Drop them").click()
        engine.hold()
        await page.set_input_files("#file", sound)
        await until(engine.entered.is_set)
        for count in (1, 2, 3):
            await until(lambda: bool(daemon.admission.admitted))
            (connection,) = daemon.admission.admitted
            connection.transport.abort()
            await until(lambda: totals.resumed == count)  # noqa: B023 - used at once
        engine.release()
        await expect(status).to_have_text("Ready")
        assert await page.locator("#log").inner_text() == unbroken
        assert unbroken


async def test_a_session_that_is_gone_is_followed_by_a_new_one(
    browser: Browser, tmp_path: Path
) -> None:
    """On the same connection; the new session hears what had no final."""
    number = 0

    async def script(peer: Peer) -> None:
        nonlocal number
        number += 1
        if number == 1:
            await peer.until(Start)
            await peer.send(replace(ready(), key="secret"))
            await peer.until(Stop)
            await peer.send(final("One.", end=1.5))
            peer.websocket.transport.abort()
            return
        await peer.until(Resume)
        await peer.send(Error(code="bad_resume", message="no such session", fatal=False))
        await peer.open()
        await peer.until(Stop)
        await peer.send(final("Two.", end=1.0), closed())

    async with scripted(browser, script, language_hint=BROKEN) as (server, page):
        await page.set_input_files("#file", sound_file(tmp_path / "talk.wav", 4, silence=0))
        await expect(page.get_by_role("status")).to_have_text("Ready")
        await expect(lines(page)).to_have_text(["One.", "Two."])
        first, second = server.peers
    assert second.audio == first.audio[round(1.5 * 16_000) * 2 :]
    assert second.websocket.request is not None
    assert second.websocket.request.path == "/v1?resume=s1"


async def test_a_token_stands_in_the_address(browser: Browser, tmp_path: Path) -> None:
    """Behind #, which no server sees. Without it the page says what is missing."""
    tokens = tmp_path / "tokens"
    tokens.write_text("desk a-token-of-some-length\n")
    sound = sound_file(tmp_path / "talk.wav", 4)
    async with serving(ScriptedEngine(), tokens_file=str(tokens)) as daemon:
        url = f"http://127.0.0.1:{daemon.port}/"
        for wrong in ("", "#token=another-of-some-length", "#token=no token"):
            async with visiting(browser, url + wrong, language_hint=BROKEN) as page:
                await page.set_input_files("#file", sound)
                await expect(page.get_by_role("alert")).to_contain_text("The service wants a token")
        async with visiting(browser, f"{url}#token=a-token-of-some-length") as page:
            await page.set_input_files("#file", sound)
            await expect(lines(page)).not_to_have_count(0)


async def test_a_daemon_that_fails_again_and_again_is_given_up(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own words; the captions so far stay."""

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.send(Error(code="internal", message="a fault of the daemon", fatal=True))
        await peer.websocket.close(1011)

    hurry = "const later = setTimeout; window.setTimeout = (task, ms) => later(task, ms / 100);"
    async with scripted(browser, script, prelude=hurry, language_hint=BROKEN) as (server, page):
        await page.set_input_files("#file", sound_file(tmp_path / "talk.wav", 1))
        await expect(page.get_by_role("alert")).to_contain_text(
            "The service fails again and again."
        )
        await expect(page.get_by_role("alert")).to_contain_text("a fault of the daemon")
        await expect(page.get_by_role("status")).to_have_text("Ready")
        assert len(server.peers) == 5


async def test_a_busy_service_is_waited_for_in_its_own_words(browser: Browser) -> None:
    """What is said meanwhile is kept: it arrives once there is a place."""
    full = True

    def refuse(connection: ServerConnection, _request: Request) -> Response | None:
        text = "all 16 sessions are taken\n"
        return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, text) if full else None

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(Stop)
        await peer.send(closed())

    async with scripted(browser, script, refuse=refuse, language_hint=BROKEN) as (server, page):
        await start(page)
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("no session just now: all 16 sessions are taken.")
        full = False
        await expect(page.get_by_role("status")).to_have_text("Listening")
        await expect(alert).to_be_hidden()
        await stop(page)
        await expect(page.get_by_role("status")).to_have_text("Ready")
        assert len(server.peers) == 1


async def test_a_model_that_loads_is_said_and_waited_for(browser: Browser) -> None:
    engine = ScriptedEngine()
    engine.hold_warm_up()
    async with (
        serving(engine, warm=False) as daemon,
        visiting(browser, f"http://127.0.0.1:{daemon.port}/", language_hint=BROKEN) as page,
    ):
        await expect(page.get_by_role("alert")).to_contain_text(
            "captiond is still loading its model"
        )
        engine.finish_warm_up()
        await expect(page.get_by_role("alert")).to_be_hidden()


async def test_what_is_dismissed_is_not_said_again(browser: Browser) -> None:
    """Nor is what stands there already: it would interrupt a screen reader every three seconds."""
    engine = ScriptedEngine()
    engine.hold_warm_up()
    hurry = """
        const [ask, later] = [fetch, setTimeout];
        window.asked = window.changes = 0;
        window.fetch = (...about) => { window.asked += 1; return ask(...about); };
        window.setTimeout = (task, ms) => later(task, ms / 30);
    """
    watch = """() => {
        const notice = document.getElementById("notice");
        const every = { attributes: true, childList: true, characterData: true, subtree: true };
        new MutationObserver(() => { window.changes += 1; }).observe(notice, every);
    }"""
    for_a_while = "(before) => window.asked > before + 6"
    async with (
        serving(engine, warm=False) as daemon,
        visiting(
            browser, f"http://127.0.0.1:{daemon.port}/", language_hint=BROKEN, prelude=hurry
        ) as page,
    ):
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("captiond is still loading its model")
        await page.evaluate(watch)
        await page.wait_for_function(for_a_while, arg=await page.evaluate("() => window.asked"))
        assert await page.evaluate("() => window.changes") == 0
        await page.get_by_role("button", name="Dismiss").click()
        await expect(page.get_by_role("button", name="Start listening")).to_be_focused()
        await page.wait_for_function(for_a_while, arg=await page.evaluate("() => window.asked"))
        await expect(alert).to_be_hidden()
        engine.finish_warm_up()


async def test_a_service_that_is_gone_is_said(browser: Browser) -> None:
    async with AsyncExitStack() as service:
        server = await service.enter_async_context(standin(gate=page_gate()))
        async with visiting(browser, page_of(server.url), language_hint=BROKEN) as page:
            await service.aclose()
            await start(page)
            await expect(page.get_by_role("alert")).to_contain_text("service does not answer")
            await expect(page.get_by_role("status")).to_have_text("Ready")


async def test_a_wish_that_the_service_refuses_is_told_in_its_words(browser: Browser) -> None:
    async with (
        serving(ScriptedEngine()) as daemon,
        visiting(browser, f"http://127.0.0.1:{daemon.port}/") as page,
    ):
        await page.get_by_label("Language").select_option("Welsh")
        await start(page)
        await expect(page.get_by_role("alert")).to_contain_text(
            "unknown language; known are de, en"
        )
        await expect(page.get_by_role("button", name="Start listening")).to_be_enabled()


async def test_what_cannot_be_written_down_and_what_is_late_is_said(browser: Browser) -> None:
    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(bytes)
        await peer.send(
            Error(code="decode_failed", message="the model failed", fatal=False),
            Lag(seconds=7.2, shedding="partials"),
        )
        await peer.until(Stop)
        await peer.send(closed())

    async with scripted(browser, script) as (_, page):
        await start(page)
        await expect(page.get_by_role("alert")).to_contain_text("the model failed")
        await expect(page.get_by_role("status")).to_have_text("Behind")
        await expect(page.locator("#figure")).to_have_text("by 7 s")
        await page.get_by_role("button", name="Dismiss").click()
        await expect(page.get_by_role("alert")).to_be_hidden()
        await stop(page)
        await expect(page.get_by_role("status")).to_have_text("Ready")


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
async def test_a_microphone_that_does_not_open_is_explained(
    name: str, says: str, browser: Browser
) -> None:
    """And the page is as ready as before."""
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


async def test_without_encryption_the_page_says_what_to_do(
    browser: Browser, tmp_path: Path
) -> None:
    """By name and plain HTTP browsers give no microphone; a file is captioned all the same."""
    async with scripted(browser, host="captions.test") as (_, page):
        await start(page)
        await expect(page.get_by_role("alert")).to_contain_text("did not come over HTTPS")
        await page.set_input_files("#file", sound_file(tmp_path / "talk.wav", 1))
        await expect(lines(page)).to_have_text(["one"])


async def test_a_microphone_that_is_unplugged_ends_the_session_gently(browser: Browser) -> None:
    """What it heard is written down."""

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(bytes)
        await peer.send(partial("so far"))
        await peer.until(Stop)
        await peer.send(final("So far."), closed())

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
    """By itself where the browser lets it, as after a call; else by a click anywhere."""
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
        await start(page)
        await expect(status).to_have_text("Listening")
        await page.evaluate("() => window.context.suspend()")
        await page.wait_for_function("() => window.context.state === 'running'")
        await page.evaluate("() => { window.held = true; return window.context.suspend(); }")
        await expect(status).to_have_text("The browser has paused the sound: click anywhere")
        await page.evaluate("() => { window.held = false; }")
        await page.mouse.click(640, 300)
        await expect(status).to_have_text("Listening")


async def test_a_microphone_that_gives_nothing_at_all_is_noticed(browser: Browser) -> None:
    """Not even silence, which would be an event."""
    nothing = """
        AudioContext.prototype.createMediaStreamSource = function () { return this.createGain(); };
        const [clock, began] = [Date.now, Date.now()];
        Date.now = () => began + 5 * (clock() - began);
    """
    async with scripted(browser, prelude=nothing) as (_, page):
        await start(page)
        await expect(page.get_by_role("status")).to_have_text("Listening, but no sound comes in")


async def test_a_microphone_that_cannot_be_recorded_is_let_go(browser: Browser) -> None:
    """Its lamp would stay on."""
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


async def test_a_chosen_microphone_that_is_gone_gives_way_to_the_usual_one(
    browser: Browser,
) -> None:
    """Visibly, the last one, too: none that is gone stays in the list."""
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
        await expect(offered).to_have_text(["The usual one", "EngineUnderTest", "Hat"])
        await expect(microphone).to_have_value("")
        await microphone.select_option("EngineUnderTest")
        await page.evaluate(unplug)
        await expect(offered).to_have_text(["The usual one", "EngineUnderTest"])
        await expect(microphone).to_have_value("desk")
        await page.evaluate(unplug)
        await expect(offered).to_have_text(["The usual one"])
        await expect(microphone).to_have_value("")


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
    """The page says so, again where it is asked again, and asks before captions go."""
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
