"""What tests/test_stream.py does not reach through the library's front door: TLS."""

from pathlib import Path
from typing import Any

import pytest

from clients.stream import ConnectError, WrongProtocolError, connect
from tests.support.certificates import certificates
from tests.support.fakes import ScriptedEngine
from tests.support.wire import serving


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, Any]:
    made = certificates(tmp_path)
    return {"tls_certificate": made.certificate, "tls_key": made.key, "root": made.root}


async def test_an_authority_of_ones_own_is_named_by_a_variable(
    tls: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tls.pop("root")
    async with serving(ScriptedEngine(), **tls) as daemon:
        with pytest.raises(ConnectError, match=r"is not to be trusted .*SSL_CERT_FILE"):
            async with connect(daemon.address):
                pass
        monkeypatch.setenv("SSL_CERT_FILE", root)
        async with connect(daemon.address) as captions:
            await captions.stop()
            assert [message async for message in captions]


async def test_tls_where_there_is_none_is_told() -> None:
    async with serving(ScriptedEngine()) as daemon:
        with pytest.raises(ConnectError, match="without TLS its URL begins with ws://"):
            async with connect(daemon.address.replace("ws:", "wss:")):
                pass


async def test_no_tls_where_there_is_some_is_told(tls: dict[str, Any]) -> None:
    tls.pop("root")
    async with serving(ScriptedEngine(), **tls) as daemon:
        with pytest.raises(
            (WrongProtocolError, ConnectError), match="with TLS its URL begins with wss://"
        ):
            async with connect(daemon.address.replace("wss:", "ws:")):
                pass
