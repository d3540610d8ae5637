"""A service made known in the local network, by multicast DNS; needs the extra `zeroconf`."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from daemon.config import ConfigError


@asynccontextmanager
async def announced(kind: str, name: str, host: str, port: int) -> AsyncIterator[None]:
    """Announce `name` of the kind, such as _wyoming._tcp, at the addresses of this machine meanwhile.

    host: where the service listens; one that is no wildcard is announced alone.
    Raises ConfigError where the library is not installed.
    """
    try:
        from ifaddr import get_adapters  # noqa: PLC0415 - what zeroconf itself asks
        from zeroconf import ServiceInfo  # noqa: PLC0415 - an extra
        from zeroconf.asyncio import AsyncZeroconf  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            'announcing needs the package zeroconf: pip install "captiond[zeroconf]"'
        ) from None
    wildcard = host in {"", "0.0.0.0", "::"}  # noqa: S104 - asked, not bound
    found = [ip.ip for adapter in get_adapters() for ip in adapter.ips if isinstance(ip.ip, str)]
    addresses = [one for one in found if not one.startswith("127.")] if wildcard else [host]
    about = ServiceInfo(
        f"{kind}.local.",
        f"{name}.{kind}.local.",
        port=port,
        addresses=[socket.inet_aton(socket.gethostbyname(one)) for one in addresses],
    )
    responder = AsyncZeroconf()
    try:
        await responder.async_register_service(about, allow_name_change=True)
        yield
    finally:
        await responder.async_unregister_all_services()
        await responder.async_close()
