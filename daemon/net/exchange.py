"""One POST request and its response over a connection that has been accepted: HTTP/1.1, read by h11.

The websocket library reads no bodies, so that requests with one are handed over to this file by the listener.
Nothing is known here of what is asked for. The body is read as slowly as it is consumed, the response written
as slowly as it is read, and the connection closes behind the response.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import cast

import h11
from websockets.datastructures import Headers
from websockets.http11 import Request

from daemon.net.http import Reply

READ_AHEAD = 2**18  # bytes of a body that wait at most, beside one read of the socket
SLOWEST = 1024  # bytes a second: an upload that is slower, after PATIENCE, is given up
PATIENCE = 30.0  # seconds
LINGER = 2.0  # seconds that a client which still sends has to read its refusal

logger = logging.getLogger(__name__)


class RefusedError(Exception):
    """What is asked for will not be done; `reply` says why."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.body)
        self.reply = reply


class Exchange(asyncio.Protocol):
    """A request and its response. handle: answers it by `reply`, or by `begin`, `write` and `finish`.

    asked, lost: told when the request's head has come, and when the connection has ended. What `handle`
    does is cancelled where the client goes. A RefusedError that it raises becomes the response.
    """

    transport: asyncio.Transport
    request: Request
    headers: Mapping[str, str] = {}  # of every response

    def __init__(
        self,
        handle: Callable[["Exchange"], Awaitable[None]],
        asked: Callable[["Exchange"], None],
        lost: Callable[["Exchange"], None],
    ) -> None:
        self._handle = handle
        self._asked = asked
        self._lost = lost
        self._http = h11.Connection(h11.SERVER)
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[bytes] = deque()
        self._waiting = 0  # bytes in them
        self._body_over = False
        self._broken = False  # what came is no HTTP
        self._came = asyncio.Event()  # something of the body, or its end
        self._writable = asyncio.Event()
        self._writable.set()
        self._done = False
        self.task: asyncio.Task[None] | None = None

    def begin_with(self, transport: asyncio.Transport) -> None:
        """From now on this is the protocol of the connection."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """More of the request; what comes behind its end is ignored."""
        if self._done or self._body_over or self._broken:
            return
        try:
            self._http.receive_data(data)
            while (event := self._http.next_event()) is not h11.NEED_DATA:
                if event is h11.PAUSED:
                    break
                self._take(cast("h11.Event", event))
        except h11.RemoteProtocolError as error:
            self._broken = True
            self._came.set()
            if self.task is None:
                status = HTTPStatus(error.error_status_hint)
                self.task = self._loop.create_task(self._refuse(Reply(status, f"{error}\n")))
        if self._waiting > READ_AHEAD:
            self.transport.pause_reading()

    def _take(self, event: h11.Event) -> None:
        match event:
            case h11.Request():
                headers = Headers(
                    (n.decode("ascii"), v.decode("latin-1")) for n, v in event.headers
                )
                self.request = Request(event.target.decode("ascii"), headers)
                self._asked(self)
                self.task = self._loop.create_task(self._serve())
            case h11.Data():
                self._chunks.append(bytes(event.data))
                self._waiting += len(event.data)
                self._came.set()
            case h11.EndOfMessage():
                self._body_over = True
                self._came.set()
            case _:
                pass

    def pause_writing(self) -> None:
        """The client reads more slowly than is written."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It has read."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or all is said."""
        del exc
        self._lost(self)
        if self.task is not None and not self._done:
            self.task.cancel()

    async def body(self) -> AsyncIterator[bytes]:
        """The request's body, as it comes. Raises RefusedError for one that is broken or hardly comes."""
        if self._http.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[]))
        deadline = self._loop.time() + PATIENCE
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._waiting -= len(chunk)
                deadline += len(chunk) / SLOWEST
                yield chunk
            if self._broken:
                raise RefusedError(Reply(HTTPStatus.BAD_REQUEST, "the body is no HTTP\n"))
            if self._body_over:
                return
            self._came.clear()
            self.transport.resume_reading()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._came.wait()
            except TimeoutError:
                text = "the body comes too slowly\n"
                raise RefusedError(Reply(HTTPStatus.REQUEST_TIMEOUT, text)) from None

    async def reply(self, reply: Reply) -> None:
        """The whole response."""
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        headers = {"Content-Length": str(len(body)), "X-Content-Type-Options": "nosniff"}
        await self.begin(reply.status, {"Content-Type": reply.kind, **headers, **reply.headers})
        await self.write(body)
        await self.finish()

    async def begin(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        """The response's head. Without a Content-Length the body is sent in chunks."""
        fields = [*headers.items(), *self.headers.items(), ("Connection", "close")]
        self._send(h11.Response(status_code=status, headers=fields, reason=status.phrase.encode()))

    async def write(self, data: bytes) -> None:
        """More of the response's body; waits while the client does not read."""
        self._send(h11.Data(data=data))
        await self._writable.wait()

    async def finish(self) -> None:
        """The end of the response."""
        self._send(h11.EndOfMessage())
        await self._writable.wait()

    @property
    def begun(self) -> bool:
        """Whether the response has begun, so that no other can be given."""
        return self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self.transport.write(data)

    async def _serve(self) -> None:
        try:
            await self._handle(self)
        except RefusedError as error:
            await self._refuse(error.reply)
        except Exception:
            logger.exception("a request failed")
            await self._refuse(Reply(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of the daemon\n"))
        else:
            await self._close()

    async def _refuse(self, reply: Reply) -> None:
        if not self.begun:
            await self.reply(reply)
        await self._close()

    async def _close(self) -> None:
        """Close; whoever still sends gets the time to read, for bytes that nobody takes undo the response."""
        self._done = True
        if not self._body_over and not self.transport.is_closing():
            self.transport.resume_reading()
            if self.transport.can_write_eof():
                self.transport.write_eof()
            await asyncio.sleep(LINGER)
        self.transport.close()
