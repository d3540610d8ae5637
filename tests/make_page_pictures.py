"""Makes docs/page-*.webp: moments of real runs of the page in Chromium, Whisper listening.

Never imported by captiond or its tests, and no caption in it is made up. Run by hand from the
repository's root, on a machine with Debian's chromium:

    python -m tests.make_page_pictures [MODEL]

Beside other work the model falls behind, and there are no words that may still change to be seen.
"""

import asyncio
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.async_api import Page

from tests.browser import PHONE, WIDE, chromium, sound_file, visiting
from tests.page_daemon import whisper_daemon

DOCS = Path(__file__).resolve().parent.parent / "docs"
PATIENCE_MS = 180_000
# Enough captions above, and words of both kinds in the one being spoken.
MOMENT = """(captions) => {
    const length = (kind) => document.querySelector(`#live ${kind}`)?.textContent.length ?? 0;
    const final = document.querySelectorAll("#log p").length;
    return final >= captions && length(".settled") > 12 && length(".tentative") > 3;
}"""


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
        return await moment(page, 1, transparent=True)


async def main(model: str) -> None:
    """All three, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        sound = sound_file(Path(folder) / "sound.wav", 32)
        async with whisper_daemon(model) as daemon:
            url = f"http://127.0.0.1:{daemon.port}/"
            keep(await listening(url, sound, 4, color_scheme="light"), "wide")
            phone = {"viewport": PHONE, "device_scale_factor": 2, "has_touch": True}
            keep(await listening(url, sound, 3, color_scheme="dark", **phone), "phone")
            keep(await overlay(url, sound), "overlay", dusk(WIDE["width"], WIDE["height"]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "base"))
