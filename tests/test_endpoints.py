import pytest

from daemon.server import Daemon
from tests.support.fakes import ScriptedEngine
from tests.support.wire import exchange, get, serving


async def head(daemon: Daemon, path: str) -> tuple[str, bytes]:
    return await exchange(daemon, f"HEAD {path} HTTP/1.1")


@pytest.mark.parametrize("path", ["/", "/livez", "/readyz", "/healthz", "/metrics"])
async def test_a_head_is_a_get_without_its_body(path: str) -> None:
    async with serving(ScriptedEngine()) as daemon:
        status, fields, body = await get(daemon, path)
        assert (status, bool(body)) == (200, True)
        first, nothing = await head(daemon, path)
    assert " 200 " in first.splitlines()[0]
    assert nothing == b""
    assert "content-length: 0" not in first.lower()
    assert "content-length:" in fields.lower()


async def test_other_methods_are_told_which_are_served() -> None:
    async with serving(ScriptedEngine()) as daemon:
        first, body = await exchange(daemon, "POST /healthz HTTP/1.1")
    assert " 405 " in first.splitlines()[0]
    assert "Allow: GET, HEAD" in first
    assert body == b"POST is not served here: use GET or HEAD\n"
