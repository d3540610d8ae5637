"""A service that fails, restarts, refuses or is late, and what the page says and saves then."""

import asyncio
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
    end,
    held_timers,
    lines,
    page_gate,
    page_of,
    page_tests,
    scripted,
    sound_file,
    start,
    visiting,
)
from tests.support.fakes import ScriptedEngine
from tests.support.relay import relaying
from tests.support.standin import Peer, answering, closed, final, partial, ready, standin
from tests.support.wire import health, serving, until

pytestmark = page_tests

FIRST_PAUSE_MS = 500  # before the page connects again


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

    async with scripted(browser, script, prelude=held_timers(FIRST_PAUSE_MS)) as (server, page):
        await page.set_input_files("#file", path)
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("The service is stopping or starts anew.")
        await expect(page.get_by_role("status")).to_have_text("Waiting for the service")
        await expect(page.locator("#live .words")).to_have_text(["two th"])
        await page.evaluate("() => window.runTimers()")
        await expect(page.get_by_role("status")).to_have_text("Ready")
        await expect(alert).to_be_hidden()
        await expect(lines(page)).to_have_text(["One.", "Two three."])
        await expect(page.locator("#log .time")).to_have_text(["0:00", "0:01"])
        first, second = server.peers
    whole = first.audio
    assert second.audio == whole[round(1.5 * 16_000) * 2 :]


async def test_a_session_outlives_its_connection(browser: Browser, tmp_path: Path) -> None:
    sound = sound_file(tmp_path / "talk.wav", 20)
    engine = ScriptedEngine()
    async with (
        serving(engine, resume_seconds=60.0) as daemon,
        relaying(daemon.port) as relay,
        visiting(browser, f"http://127.0.0.1:{relay.port}/", expected=BROKEN) as page,
    ):
        status = page.get_by_role("status")
        await page.set_input_files("#file", sound)
        await expect(lines(page)).not_to_have_count(0)  # the status is Ready before it begins, too
        await expect(status).to_have_text("Ready")
        unbroken = await page.locator("#log").inner_text()
        await page.get_by_role("button", name="Clear").click()
        await page.get_by_role("button", name="Drop them").click()
        engine.hold()
        await page.set_input_files("#file", sound)
        await until(engine.entered.is_set)
        for count in (1, 2, 3):
            relay.cut()
            while (await health(daemon))[1]["resumed"] < count:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.02)
        engine.release()
        await expect(status).to_have_text("Ready")
        assert await page.locator("#log").inner_text() == unbroken
        assert unbroken


async def test_a_session_now_gone_is_followed_by_another(browser: Browser, tmp_path: Path) -> None:
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

    async with scripted(browser, script, expected=BROKEN) as (server, page):
        await page.set_input_files("#file", sound_file(tmp_path / "talk.wav", 4, silence=0))
        await expect(page.get_by_role("status")).to_have_text("Ready")
        await expect(lines(page)).to_have_text(["One.", "Two."])
        first, second = server.peers
    assert second.audio == first.audio[round(1.5 * 16_000) * 2 :]
    assert second.websocket.request is not None
    assert second.websocket.request.path == "/v1?resume=s1"


async def test_a_token_stands_in_the_address(browser: Browser, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("desk a-token-of-some-length\n")
    sound = sound_file(tmp_path / "talk.wav", 4)
    async with serving(ScriptedEngine(), tokens_file=str(tokens)) as daemon:
        url = f"http://127.0.0.1:{daemon.port}/"
        for wrong in ("", "#token=another-of-some-length", "#token=no token"):
            async with visiting(browser, url + wrong, expected=BROKEN) as page:
                await page.set_input_files("#file", sound)
                await expect(page.get_by_role("alert")).to_contain_text("The service wants a token")
        async with visiting(browser, f"{url}#token=a-token-of-some-length") as page:
            await page.set_input_files("#file", sound)
            await expect(lines(page)).not_to_have_count(0)


async def test_a_daemon_that_fails_again_and_again_is_given_up(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.send(Error(code="internal", message="a fault of the daemon", fatal=True))
        await peer.websocket.close(1011)

    hurry = "const later = setTimeout; window.setTimeout = (task, ms) => later(task, ms / 100);"
    async with scripted(browser, script, prelude=hurry, expected=BROKEN) as (server, page):
        await page.set_input_files("#file", sound_file(tmp_path / "talk.wav", 1))
        await expect(page.get_by_role("alert")).to_contain_text(
            "The service fails again and again."
        )
        await expect(page.get_by_role("alert")).to_contain_text("a fault of the daemon")
        await expect(page.get_by_role("status")).to_have_text("Ready")
        assert len(server.peers) == 5


async def test_a_busy_service_is_waited_for_in_its_own_words(browser: Browser) -> None:
    full = True

    def refuse(connection: ServerConnection, _request: Request) -> Response | None:
        text = "all 16 sessions are taken\n"
        return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, text) if full else None

    async with scripted(browser, answering(closed()), refuse=refuse, expected=BROKEN) as (
        server,
        page,
    ):
        await start(page)
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("no session just now: all 16 sessions are taken.")
        full = False
        await expect(page.get_by_role("status")).to_have_text("Listening")
        await expect(alert).to_be_hidden()
        await end(page)
        assert len(server.peers) == 1


async def test_a_model_that_loads_is_said_and_waited_for(browser: Browser) -> None:
    engine = ScriptedEngine(warm=False)
    async with (
        serving(engine, warm=False) as daemon,
        visiting(browser, f"http://127.0.0.1:{daemon.port}/", expected=BROKEN) as page,
    ):
        await expect(page.get_by_role("alert")).to_contain_text(
            "captiond is still loading its model"
        )
        engine.finish_warm_up()
        await expect(page.get_by_role("alert")).to_be_hidden()


async def test_what_is_dismissed_is_not_said_again(browser: Browser) -> None:
    """Nor is a notice that is shown: it would interrupt a screen reader every three seconds."""
    engine = ScriptedEngine(warm=False)
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
            browser, f"http://127.0.0.1:{daemon.port}/", expected=BROKEN, prelude=hurry
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
        async with visiting(browser, page_of(server.url), expected=BROKEN) as page:
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


async def test_the_language_may_be_changed_while_the_page_listens(browser: Browser) -> None:
    engine = ScriptedEngine()
    async with (
        serving(engine) as daemon,
        visiting(browser, f"http://127.0.0.1:{daemon.port}/") as page,
    ):
        language = page.get_by_label("Language")
        await language.select_option("English")
        await start(page)
        await expect(lines(page)).not_to_have_count(0)
        assert {one.language for one in engine.admitted} == {"en"}
        await expect(page.get_by_label("Temperature")).to_be_disabled()
        await language.select_option("Welsh")
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("The language stays as it was. unknown language")
        await language.select_option("German")
        await until(lambda: engine.admitted[-1].language == "de")
        await end(page)
        await expect(language).to_be_enabled()


async def test_what_cannot_be_written_down_and_what_is_late_is_said(browser: Browser) -> None:
    script = answering(
        closed(),
        early=[
            Error(code="decode_failed", message="the model failed", fatal=False),
            Lag(seconds=7.2, shedding="partials"),
        ],
    )
    async with scripted(browser, script) as (_, page):
        await start(page)
        await expect(page.get_by_role("alert")).to_contain_text("the model failed")
        await expect(page.get_by_role("status")).to_have_text("Behind")
        await expect(page.locator("#figure")).to_have_text("by 7 s")
        await page.get_by_role("button", name="Dismiss").click()
        await expect(page.get_by_role("alert")).to_be_hidden()
        await end(page)
