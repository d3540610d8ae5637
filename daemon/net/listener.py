"""The listener: TCP connections, TLS, silent connections and lost peers.

It reads no frame and knows no session. A connection's first bytes say who reads the rest: a POST has a body,
which the websocket library does not read, and goes to daemon/net/exchange.py; all else is the library's.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import cast

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from daemon.config import Config
from daemon.net.auth import KeysHidden
from daemon.net.exchange import Exchange
from streaming.dialects.offers import OFFERS, Offer

PING_INTERVAL = 20.0  # seconds: keeps proxies from closing a connection that is silent
PEER_TIMEOUT = 60  # seconds for which a client may neither answer nor read
REQUEST_TIMEOUT = 10.0  # seconds that a connection may take to send its request
QUEUED_FRAMES = 4  # read ahead, each up to max_frame_bytes; a slow session must not hoard
SPARE_CONNECTIONS = 200  # connections beside those that have a session: probes, pages, scans
WITH_BODY = b"POST "  # what a request begins with that is not the websocket library's

SUBPROTOCOLS = {name for offer in OFFERS for name in offer.subprotocols}

KEYS_HIDDEN = KeysHidden()

Answerer = Callable[[ServerConnection, Request], Awaitable[Response | None]]


class ListenError(Exception):
    """The address cannot be bound; the message is a full sentence."""


class Tracked(ServerConnection):
    """A websocket of `listener`, which another reads until it is known to be one."""

    listener: "Listener"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The library knows connections after the handshake only; the listener from now on."""
        opening = Opening(self, cast("asyncio.Transport", transport))
        opening.transport.set_protocol(opening)
        self.listener.accepted(opening)

    def begin_with(self, transport: asyncio.Transport) -> None:
        """From now on this is the protocol of the connection."""
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self.listener.lost(self)
        super().connection_lost(exc)


class Opening(asyncio.Protocol):
    """A connection that has been accepted, TLS agreed upon, and of which nothing else is known."""

    def __init__(self, websocket: Tracked, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._websocket = websocket
        self._first = b""

    def data_received(self, data: bytes) -> None:
        """Choose who reads, and be of no more use."""
        self._first += data
        if len(self._first) < len(WITH_BODY) and WITH_BODY.startswith(self._first):
            return
        listener = self._websocket.listener
        reader: Tracked | Exchange = self._websocket
        if self._first.startswith(WITH_BODY):
            reader = listener.exchange()
        self.transport.set_protocol(reader)
        reader.begin_with(self.transport)
        listener.replace(self, reader)
        reader.data_received(self._first)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has never said what it wants."""
        del exc
        self._websocket.listener.lost(self)


Peer = ServerConnection | Exchange | Opening


class Listener:
    """Accepts connections and keeps a list of them.

    handle: serves a websocket. answer: replies to its request in HTTP, or with None lets it in. take:
    answers a request with a body. sockets: every connection, handshake or not, with the timer that ends it
    if it sends no request.
    """

    def __init__(
        self,
        handle: Callable[[ServerConnection], Awaitable[None]],
        answer: Answerer,
        take: Callable[[Exchange], Awaitable[None]],
        config: Config,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.sockets: dict[Peer, asyncio.TimerHandle] = {}
        self._servers: list[Server] = []
        logging.getLogger("websockets.server").addFilter(KEYS_HIDDEN)
        self._handle = handle
        self._answer = answer
        self._take = take
        self._config = config
        self.most = config.max_sessions + SPARE_CONNECTIONS  # connections; a reload may change it
        self._tls = tls

    @property
    def port(self) -> int:
        """The bound TCP port, also where the configuration has 0."""
        return int(self._servers[0].sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        """Host and port as in a URL, or the path of a Unix socket."""
        name = self._servers[0].sockets[0].getsockname()
        if isinstance(name, str):
            return name
        return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    @property
    def is_serving(self) -> bool:
        """Whether new connections are accepted."""
        return any(server.is_serving() for server in self._servers)

    async def open(self, inherited: Sequence[socket.socket]) -> None:
        """Listen on the inherited sockets, or else at the configured address.

        Raises ListenError, and listens nowhere.
        """
        host, port = self._config.host, self._config.port
        try:
            for sock in inherited:
                self._servers.append(await self._serve(None, None, sock))
            ports = [*([] if inherited else [port]), *own_ports(self._config)]
            for port in ports:
                self._servers.append(await self._serve(host, port, None))
        except OSError as error:
            for server in self._servers:
                server.close()
            raise ListenError(
                f"cannot listen on {host}, port {port}: {error.strerror}; take another --port or --host"
            ) from None

    async def _serve(
        self, host: str | None, port: int | None, sock: socket.socket | None
    ) -> Server:
        return await serve(
            self._handle,
            host,
            port,
            sock=sock,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else REQUEST_TIMEOUT,
            # PCM hardly shrinks by deflate, which would cost more than the audio's own processing.
            compression=None,
            create_connection=self._tracked(),
            select_subprotocol=_select_subprotocol,
            process_request=self._asked,
            max_size=self._config.max_frame_bytes,
            max_queue=QUEUED_FRAMES,
            ping_interval=PING_INTERVAL,
            # Pongs wait behind audio while reading is paused, so their absence proves nothing; the
            # kernel finds dead peers instead (watch_peer).
            ping_timeout=None,
            # A response may wait for the model; timers end connections without a request.
            open_timeout=None,
        )

    async def _asked(self, socket: ServerConnection, request: Request) -> Response | None:
        self._has_asked(socket)
        return await self._answer(socket, request)

    def _has_asked(self, peer: Peer) -> None:
        if (timer := self.sockets.get(peer)) is not None:  # else the connection has ended already
            timer.cancel()

    @property
    def exchanges(self) -> list[Exchange]:
        """The requests with a body that are being answered."""
        return [one for one in self.sockets if isinstance(one, Exchange)]

    def exchange(self) -> Exchange:
        """A reader for a connection that begins a request with a body."""
        return Exchange(self._take, self._has_asked, self.lost)

    def accepted(self, peer: Peer) -> None:
        """Enter a new connection in the account; where there are too many, one ends."""
        loop = asyncio.get_running_loop()
        self.sockets[peer] = loop.call_later(REQUEST_TIMEOUT, peer.transport.abort)
        watch_peer(peer.transport.get_extra_info("socket"))
        here = [one for one in self.sockets if not one.transport.is_closing()]
        if len(here) > self.most:
            # A connection without a request goes first: silent ones must not keep others out.
            silent = (one for one in here if not self.sockets[one].cancelled())
            next(silent, peer).transport.abort()

    def replace(self, opening: Opening, reader: ServerConnection | Exchange) -> None:
        """The connection is read by `reader` from now on; its timer goes on."""
        self.sockets[reader] = self.sockets.pop(opening)

    def lost(self, peer: Peer) -> None:
        """The connection has ended."""
        self.sockets.pop(peer).cancel()

    def close(self, keep: Collection[object]) -> None:
        """Accept no more; drop every connection that is not in `keep` and answers no request."""
        for server in self._servers:
            server.close(close_connections=False)
        self.drop(self.sockets.keys() - set(keep) - set(self.exchanges))

    def drop(self, peers: set[Peer]) -> None:
        """End these connections without a close frame."""
        for one in peers:
            one.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the last connection has ended."""
        while tasks := [one.task for one in self.exchanges if one.task is not None]:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # the connection is lost in the turn after that
        for server in self._servers:
            await server.wait_closed()

    def _tracked(self) -> type[ServerConnection]:
        """The class of this listener's connections."""
        return type("Tracked", (Tracked,), {"listener": self})


def own_ports(config: Config) -> dict[int, Offer]:
    """The ports at which one protocol alone is spoken, whatever the path."""
    ports = {getattr(config, offer.port): offer for offer in OFFERS if offer.port}
    return {port: offer for port, offer in ports.items() if port}


def watch_peer(connection: socket.socket) -> None:
    """Have the kernel end the connection when the peer is gone, or reads nothing, for PEER_TIMEOUT.

    Keepalive probes serve silent connections, TCP_USER_TIMEOUT those with data under way, a closed
    window included (tcp(7)).
    """
    if connection.family == socket.AF_UNIX:  # its peers do not get lost
        return
    probes = 3
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, PEER_TIMEOUT // 2),
        (socket.TCP_KEEPINTVL, PEER_TIMEOUT // 2 // probes),
        (socket.TCP_KEEPCNT, probes),
        (socket.TCP_USER_TIMEOUT, PEER_TIMEOUT * 1000),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _select_subprotocol(
    _socket: ServerConnection, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    """Of those offered; also for a client that offers none. Those that fit no path have been refused."""
    return next((name for name in offered if name in SUBPROTOCOLS), None)
