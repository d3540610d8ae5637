"""Pages of other origins that ask the APIs for recordings, as a browser asks for them."""

import pytest

from tests.support.fakes import ScriptedEngine
from tests.support.wire import exchange, serving

PAGE, ELSEWHERE = "https://app.example", "https://other.example"
FORM = "/v1/audio/transcriptions"


def fields(head: str) -> dict[str, str]:
    pairs = (line.partition(": ") for line in head.splitlines()[1:])
    return {name.lower(): value for name, _, value in pairs}


@pytest.mark.parametrize(
    ("path", "methods"),
    [(FORM, "POST"), ("/v1/listen", "POST"), ("/v1/models", "GET, HEAD")],
)
async def test_a_page_that_may_ask_is_told_so_before_it_asks(path: str, methods: str) -> None:
    async with serving(ScriptedEngine(), allowed_origins=(PAGE,)) as daemon:
        lines = [f"OPTIONS {path} HTTP/1.1", "Access-Control-Request-Method: POST"]
        wanted = "Access-Control-Request-Headers: authorization, x-stainless-os"
        head, body = await exchange(daemon, *lines, wanted, f"Origin: {PAGE}")
        other, _ = await exchange(daemon, *lines, wanted, f"Origin: {ELSEWHERE}")
    assert (head.split()[1], body) == ("200", b"")
    found = fields(head)
    assert found["access-control-allow-origin"] == PAGE
    assert found["access-control-allow-methods"] == methods
    assert found["access-control-allow-headers"] == "authorization, x-stainless-os"
    assert not [name for name in fields(other) if name.startswith("access-control")]


@pytest.mark.parametrize("asked", [f"POST {FORM}", "POST /v1/listen", "GET /v1/models"])
async def test_its_answers_may_be_read_errors_as_well(asked: str) -> None:
    async with serving(ScriptedEngine(), allowed_origins=(PAGE,)) as daemon:
        line, length = f"{asked} HTTP/1.1", "Content-Length: 0"
        length = length if asked.startswith("POST") else "Accept: */*"
        head, _ = await exchange(daemon, line, length, f"Origin: {PAGE}")
        other, _ = await exchange(daemon, line, length, f"Origin: {ELSEWHERE}")
        plain, _ = await exchange(daemon, line, length)
    assert fields(head)["access-control-allow-origin"] == PAGE
    assert fields(head)["vary"] == "Origin"
    assert other.split()[1] == "403"
    assert "access-control" not in (other + plain).lower()


async def test_other_paths_have_no_such_method() -> None:
    async with serving(ScriptedEngine(), allowed_origins=("*",)) as daemon:
        head, _ = await exchange(daemon, "OPTIONS /healthz HTTP/1.1", f"Origin: {PAGE}")
    assert head.split()[1] == "405"
