"""The page with genuine weights: what is spoken into the browser's microphone is what stands there."""

from pathlib import Path

import pytest
from playwright.async_api import expect

from clients.demo import overlap
from tests.support.browser import chromium, lines, needs_chromium, sound_file, start, stop, visiting
from tests.support.page_daemon import whisper_daemon
from tests.support.wire import SAMPLE

pytestmark = [needs_chromium, pytest.mark.real, pytest.mark.timeout(600)]

PATIENCE_MS = 240_000  # the model has one thread, and the machine may be busy
SECONDS = 10.5  # of the sample: the first three sentences


async def test_speech_into_the_microphone_becomes_captions(tmp_path: Path) -> None:
    """On the page, and in the SubRip download."""
    said = " ".join(SAMPLE.with_suffix(".txt").read_text("utf-8").splitlines()[:3])
    # The microphone repeats its file: the silence is longer than the test.
    sound = sound_file(tmp_path / "sound.wav", SECONDS, silence=PATIENCE_MS / 1000)
    async with (
        whisper_daemon() as daemon,
        chromium(sound) as browser,
        visiting(browser, f"http://127.0.0.1:{daemon.port}/") as page,
    ):
        await start(page)
        await expect(lines(page).nth(2)).not_to_be_empty(timeout=PATIENCE_MS)
        await stop(page)
        await expect(page.get_by_role("status")).to_have_text("Ready", timeout=PATIENCE_MS)
        heard = " ".join(await lines(page).all_inner_texts())
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Download as SRT subtitles").click()
        subtitles = (await (await download.value).path()).read_text("utf-8")
    assert overlap(said, heard) > 0.9, heard
    assert subtitles.startswith("1\n00:00:0")


async def test_a_file_becomes_captions(tmp_path: Path) -> None:
    """Decoded by the browser, as fast as the model reads."""
    said = " ".join(SAMPLE.with_suffix(".txt").read_text("utf-8").splitlines()[:3])
    sound = sound_file(tmp_path / "sound.wav", SECONDS)
    async with (
        whisper_daemon() as daemon,
        chromium(sound) as browser,
        visiting(browser, f"http://127.0.0.1:{daemon.port}/") as page,
    ):
        await page.set_input_files("#file", sound)
        await expect(lines(page).first).not_to_be_empty(
            timeout=PATIENCE_MS
        )  # it was ready before, too
        await expect(page.get_by_role("status")).to_have_text("Ready", timeout=PATIENCE_MS)
        heard = " ".join(await lines(page).all_inner_texts())
    assert overlap(said, heard) > 0.9, heard
