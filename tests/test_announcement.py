import asyncio
import sys

import pytest

from daemon.config import ConfigError
from daemon.net.announcement import announced
from tests.support.fakes import PATIENCE


async def test_the_service_is_found_while_it_is_announced() -> None:
    zeroconf = pytest.importorskip("zeroconf", reason="the extra zeroconf is not installed")
    from zeroconf.asyncio import AsyncZeroconf  # noqa: PLC0415 - an extra

    kind = "_wyoming._tcp.local."
    try:
        searcher = AsyncZeroconf(interfaces=["127.0.0.1"])
    except OSError as error:
        pytest.skip(f"no multicast here: {error}")
    try:
        async with announced("_wyoming._tcp", "captiond test", "127.0.0.1", 10_300):
            found = None
            async with asyncio.timeout(PATIENCE):
                for _ in range(5):
                    found = await searcher.async_get_service_info(
                        kind, f"captiond test.{kind}", timeout=2_000
                    )
                    if found is not None:
                        break
        if found is None:
            pytest.skip("multicast does not come back on this machine")
        assert (found.port, found.parsed_addresses()) == (10_300, ["127.0.0.1"])
    finally:
        await searcher.async_close()
    assert zeroconf


async def test_without_the_library_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    with pytest.raises(ConfigError, match="zeroconf"):
        async with announced("_wyoming._tcp", "x", "127.0.0.1", 1):
            pass
