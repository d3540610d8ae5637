"""Makes docs/page-*.webp: moments of real runs of the page in Chromium, Whisper listening.

Never imported by captiond or its tests, and no caption in it is made up. Run by hand from the
repository's root, on a machine with Debian's chromium:

    python -m tests.support.make_page_pictures [NAME …] [--model NAME]

Where the machine has much else to do, the model falls behind, and no words are seen that may still change.
"""

import argparse
import asyncio
import io
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image
from playwright.async_api import Page

from streaming.protocol import SAMPLE_RATE
from tests.support.browser import PHONE, WIDE, chromium, visiting
from tests.support.page_daemon import whisper_daemon
from tests.support.wire import speech

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
NAMES = ["wide", "phone", "overlay"]
PATIENCE_MS = 240_000
# Seconds of the sample between its first sentences; longer pauses leave a busy machine time for finals.
CUTS = (0.0, 3.2, 7.6, 10.3, 16.0)
PAUSE_S = 10
# Enough captions above, and words of both kinds in the one being spoken.
MOMENT = """(captions) => {
    const length = (kind) => document.querySelector(`#live ${kind}`)?.textContent.length ?? 0;
    const final = document.querySelectorAll("#log p").length;
    return final >= captions && length(".stable") > 12 && length(".tentative") > 3;
}"""


def spaced(path: Path) -> Path:
    """A WAV file: the first sentences of the sample, a pause after each."""
    samples = np.frombuffer(speech(), "<i2")
    pause = np.zeros(PAUSE_S * SAMPLE_RATE, "<i2")
    parts = []
    for first, last in pairwise(CUTS):
        parts += [samples[round(first * SAMPLE_RATE) : round(last * SAMPLE_RATE)], pause]
    soundfile.write(path, np.concatenate(parts), SAMPLE_RATE)
    return path


def keep(picture: bytes, name: str, backdrop: Image.Image | None = None) -> None:
    """Write docs/page-NAME.webp, over `backdrop` where the page is transparent."""
    with Image.open(io.BytesIO(picture)) as image:
        whole = image.convert("RGBA")
    if backdrop is not None:
        whole = Image.alpha_composite(backdrop.convert("RGBA"), whole)
    whole.convert("RGB").save(DOCS / f"page-{name}.webp", quality=90, method=6)


def dusk(width: int, height: int) -> Image.Image:
    """A picture for the overlay to lie on: an evening sky above hills."""
    down = np.linspace(0, 1, height)[:, None]
    along = np.linspace(0, 3, width)[None, :]
    stops = np.array([[38, 52, 92], [120, 96, 128], [226, 150, 104], [247, 205, 142]])
    sky = np.stack([np.interp(down * 3, range(4), stops[:, c]) for c in range(3)], -1)
    picture = np.repeat(sky, width, 1)
    for base, swing, tone in ((0.7, 0.05, (92, 78, 96)), (0.8, 0.04, (44, 46, 62))):
        hill = down > base + swing * np.sin(along * 2.1 + base * 20) + 0.02 * np.sin(along * 7)
        picture[hill] = tone
    return Image.fromarray(picture.astype(np.uint8))


async def moment(page: Page, captions: int, *, transparent: bool = False) -> bytes:
    await page.wait_for_function(MOMENT, arg=captions, timeout=PATIENCE_MS, polling=50)
    return await page.screenshot(omit_background=transparent)


async def listening(url: str, sound: Path, captions: int, **options: Any) -> bytes:
    """The page while it listens."""
    async with chromium(sound) as browser, visiting(browser, url, **options) as page:
        await page.get_by_role("button", name="Start listening").click()
        await page.mouse.move(640, 300)
        return await moment(page, captions)


async def overlay(url: str, sound: Path) -> bytes:
    """The overlay while it listens, on nothing."""
    flag = "--autoplay-policy=no-user-gesture-required"
    async with (
        chromium(sound, flag) as browser,
        visiting(browser, f"{url}overlay?size=44", viewport=WIDE) as page,
    ):
        return await moment(page, 0, transparent=True)


async def take(name: str, url: str, sound: Path) -> None:
    """One picture, by its name."""
    phone = {"viewport": PHONE, "device_scale_factor": 2, "has_touch": True}
    match name:
        case "wide":
            keep(await listening(url, sound, 3, color_scheme="light"), name)
        case "phone":
            keep(await listening(url, sound, 3, color_scheme="dark", **phone), name)
        case "overlay":
            keep(await overlay(url, sound), name, dusk(WIDE["width"], WIDE["height"]))


async def main() -> None:
    """What the command line asks for, one after another."""
    parser = argparse.ArgumentParser(description="take pictures of the page while it listens")
    parser.add_argument("names", nargs="*", default=NAMES, help=", ".join(NAMES))
    parser.add_argument("--model", default="base")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sound = spaced(Path(folder) / "sound.wav")
        async with whisper_daemon(args.model) as daemon:
            for name in args.names:
                await take(name, f"http://127.0.0.1:{daemon.port}/", sound)


if __name__ == "__main__":
    asyncio.run(main())
