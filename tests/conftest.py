import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from hypothesis import HealthCheck, settings
from playwright.async_api import Browser, Page

from daemon.serve import physical_cores
from tests.support.browser import chromium, scripted, sound_file
from tests.support.wire import ALICE, BOB

# No outcome may depend on how fast the machine is.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# Whole engines with tiny weights, training, speech synthesis, Chromium, crowds of processes: minutes.
SLOW = {
    "test_demo",
    "test_distil",
    "test_engine",
    "test_engine_policies",
    "test_evaluate",
    "test_faults",
    "test_load",
    "test_packaging",
    "test_page_audio",
    "test_page_browser",
    "test_page_client",
    "test_page_download",
    "test_page_looks",
    "test_page_resume_state",
    "test_page_service",
    "test_page_ui",
    "test_phases",
    "test_quantised",
    "test_runner",
    "test_serve",
    "test_generate",
    "test_train",
    "test_trainer",
    "test_units",
    "test_vad",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what belongs to no tier that is run after each change."""
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def _log_restored() -> Iterator[None]:
    """What a test begins to log, and how, ends with it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("websockets").setLevel(logging.NOTSET)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from a second thread, and lose much to a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def every_core() -> Iterator[None]:
    """Genuine weights gain from a second thread, where there is a core for it."""
    torch.set_num_threads(physical_cores())
    yield
    torch.set_num_threads(1)


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    """A file with those of Alice and Bob."""
    path = tmp_path / "tokens"
    path.write_text(f"alice {ALICE}\nbob {BOB}\n")
    return str(path)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """One for all: its microphone repeats a sentence. captions.test is this machine by a name."""
    sound = sound_file(tmp_path_factory.mktemp("sound") / "sound.wav", 2.5)
    async with chromium(sound, "--host-resolver-rules=MAP captions.test 127.0.0.1") as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """The page of a scripted daemon, for tests that import its modules."""
    async with scripted(browser) as (_, page):
        yield page
