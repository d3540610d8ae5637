"""How the page and its overlay look and are read: accessibility by axe, widths, motion, transparency."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from PIL import Image
from playwright.async_api import Browser, Page, expect

from streaming.protocol import Error, Stop
from tests.support.browser import (
    PHONE,
    WIDE,
    chromium,
    held_timers,
    page_gate,
    page_tests,
    scripted,
    sound_file,
    visiting,
)
from tests.support.standin import Peer, answering, closed, final, partial, standin

pytestmark = page_tests

LONG = (
    "It listens while you speak, and shows captions as you go, however long a sentence may become. "
)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
NARROWEST = {"width": 320, "height": 640}  # WCAG 2.2, 1.4.10
MAGNIFIED = {"width": 320, "height": 256}  # 1280 by 1024, four times as large
# All that the page can show at once: captions, a partial, a notice.
IN_FULL = answering(
    closed(),
    early=[
        final(LONG * 2),
        final("Does it wait until I have finished?", start=61.0, end=63.0, utterance=1),
        partial(LONG, stable=30, utterance=2),
        Error(code="decode_failed", message="the model failed", fatal=False),
    ],
)


@asynccontextmanager
async def seen(browser: Browser, path: str = "/", **options: Any) -> AsyncIterator[Page]:
    """A page of a daemon that has much to say."""
    async with scripted(browser, IN_FULL, path=path, **options) as (_, page):
        yield page


async def in_full_sight(page: Page) -> None:
    """Start to listen, and wait until all is on the page."""
    await page.get_by_role("button", name="Start listening").click()
    await expect(page.locator("#live .words")).to_have_count(1)
    await expect(page.get_by_role("alert")).to_be_visible()


async def violations(page: Page) -> list[Any]:
    """What axe finds, with the elements it finds it at."""
    await page.evaluate(
        "() => Promise.allSettled(document.getAnimations().map((one) => one.finished))"
    )
    results = await Axe().run(page)
    return [
        (one["id"], [node["html"] for node in one["nodes"]])
        for one in results.response["violations"]
    ]


async def violations_in_any_look(page: Page) -> list[Any]:
    """In the present state: light and dark, wide and on a phone."""
    found = []
    for viewport in (WIDE, PHONE):
        await page.set_viewport_size(viewport)
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            found += await violations(page)
    return found


async def test_axe_finds_nothing(browser: Browser) -> None:
    """On the empty page; with captions, a notice and settings; with the dialog."""
    async with seen(browser) as page:
        await expect(page.get_by_role("status")).to_have_text("Ready")
        assert await violations_in_any_look(page) == []
        await in_full_sight(page)
        await page.set_viewport_size(PHONE)
        await page.get_by_role("button", name="Settings").click()
        assert await violations_in_any_look(page) == []
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_role("status")).to_have_text("Ready")
        await page.get_by_role("button", name="Clear").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await violations_in_any_look(page) == []


async def test_axe_finds_nothing_on_the_overlay(browser: Browser) -> None:
    async with seen(browser, "/overlay") as page:
        await page.mouse.click(10, 10)
        await expect(page.locator("#live .words")).to_have_count(1)
        assert await violations_in_any_look(page) == []


async def test_axe_is_awake(browser: Browser) -> None:
    """A button without a name is found."""
    async with seen(browser) as page:
        await page.evaluate("() => document.getElementById('open').replaceChildren()")
        assert [name for name, _ in await violations(page)] == ["button-name"]


@pytest.mark.parametrize("viewport", [WIDE, PHONE, NARROWEST], ids=["wide", "phone", "narrowest"])
async def test_nothing_is_cut_off_at_the_side(viewport: Any, browser: Browser) -> None:
    async with seen(browser, viewport=viewport) as page:
        await in_full_sight(page)
        assert (
            await page.evaluate("() => document.documentElement.scrollWidth") <= viewport["width"]
        )
        await expect(page.get_by_role("button", name="Stop")).to_be_in_viewport(ratio=1)
        await expect(page.locator("#live .words")).to_be_in_viewport()


async def test_a_magnified_page_belongs_to_the_captions(browser: Browser) -> None:
    from_top_to_bottom = """() => {
        document.getElementById("log").scrollIntoView();
        return [5, 250].map((y) => Boolean(document.elementFromPoint(40, y)?.closest("main")));
    }"""
    async with seen(browser, viewport=MAGNIFIED) as page:
        await in_full_sight(page)
        assert await page.evaluate(from_top_to_bottom) == [True, True]
        await expect(page.get_by_role("button", name="Latest captions")).to_be_in_viewport()
        await page.get_by_role("button", name="Latest captions").click()
        await expect(page.get_by_role("button", name="Stop")).to_be_in_viewport()


async def test_settings_unfold_on_a_phone(browser: Browser) -> None:
    async with seen(browser, viewport=PHONE) as page:
        language = page.get_by_label("Language")
        await expect(language).to_be_hidden()
        toggle = page.get_by_role("button", name="Settings")
        await toggle.click()
        await expect(language).to_be_visible()
        await expect(toggle).to_have_attribute("aria-expanded", "true")
        await toggle.click()
        await expect(language).to_be_hidden()


async def test_settled_words_look_unlike_those_that_may_change(browser: Browser) -> None:
    """In colour, and for colour-blind users in shape."""
    look = """(element) => {
        const { color, textDecorationLine } = getComputedStyle(element);
        return [color, textDecorationLine];
    }"""
    async with seen(browser) as page:
        await in_full_sight(page)
        stable = await page.locator("#live .stable").evaluate(look)
        tentative = await page.locator("#live .tentative").evaluate(look)
    assert stable[0] != tentative[0]
    assert (stable[1], tentative[1]) == ("none", "underline")


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
async def test_nothing_moves_for_those_who_want_no_motion(motion: str, browser: Browser) -> None:
    moving = """() => [...document.querySelectorAll("*")].filter((element) => {
        const { animationName, transitionDuration } = getComputedStyle(element);
        return animationName !== "none" || parseFloat(transitionDuration) > 0;
    }).length"""
    async with seen(browser, reduced_motion=motion) as page:
        await in_full_sight(page)
        assert (await page.evaluate(moving) > 0) == (motion == "no-preference")


async def test_the_overlay_shows_captions_and_what_lies_below(browser: Browser) -> None:
    """With the size, lines and alignment of the address; the rest is transparent."""
    async with seen(browser, "/overlay?size=40&lines=3&align=left&language=de") as page:
        await page.locator("body").click()
        words = page.locator("#live .words")
        await expect(words).to_contain_text("It listens while you speak")
        look = (
            "(element) => [getComputedStyle(element).fontSize, getComputedStyle(element).textAlign]"
        )
        assert await words.evaluate(look) == ["40px", "left"]
        height = await page.locator("#stage").evaluate("(element) => element.clientHeight")
        assert height == pytest.approx(3 * 1.42 * 40, abs=1)
        picture = await page.screenshot(omit_background=True)
    with Image.open(io.BytesIO(picture)) as image:
        alpha = image.getchannel("A")
        assert alpha.crop((0, 0, WIDE["width"], WIDE["height"] // 2)).getextrema() == (0, 0)
        assert alpha.getextrema()[1] == 255


async def test_the_overlay_begins_by_itself_and_clears_away(tmp_path: Path) -> None:
    """If the browser allows sound without a click, as OBS does. A caption is removed when none follows."""

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.until(bytes)
        await peer.send(partial("One"), final("One."))
        await peer.until(Stop)

    sound = sound_file(tmp_path / "sound.wav", 1)
    async with (
        standin(script, gate=page_gate()) as server,
        chromium(sound, "--autoplay-policy=no-user-gesture-required") as browser,
        visiting(browser, f"http{server.url[2:]}/overlay", prelude=held_timers(6_000)) as page,
    ):
        await expect(page.get_by_role("log")).to_have_text("One.")
        await page.evaluate("() => window.runTimers()")
        await expect(page.get_by_role("log")).to_be_empty()
        await expect(page.get_by_text("Click here")).to_be_hidden()


async def test_the_overlay_says_what_is_wrong(browser: Browser) -> None:
    """Of its address and of the microphone, there with a hint for users of OBS."""
    async with seen(browser, "/overlay?lines=many") as page:
        await expect(page.get_by_role("alert")).to_have_text(
            "The address is wrong: lines is a whole number from 1 to 8."
        )
    deny = """
        navigator.mediaDevices.getUserMedia = async () => {
            throw Object.assign(new Error(), { name: "NotAllowedError" });
        };
    """
    async with seen(browser, "/overlay", prelude=deny) as page:
        await expect(page.get_by_role("alert")).to_contain_text("--enable-media-stream")
