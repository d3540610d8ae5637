"""The APIs for recordings over HTTP: which path is whose, and a request's way from the upload to the answer.

What forms and answers look like is streaming/dialects/openai_rest.py's and deepgram_rest.py's business.
"""

import asyncio
import hashlib
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import IO
from urllib.parse import parse_qsl, urlsplit

from websockets.http11 import Request

from daemon.files.service import FileService, Running, restated
from daemon.files.upload import receive_body, receive_form
from daemon.monitoring.health import RETRY_AFTER
from daemon.net.exchange import Exchange, RefusedError
from daemon.net.http import Reply
from streaming.dialects import deepgram_rest, openai_rest
from streaming.dialects.rest import RestError
from streaming.protocol import Final, Task

MODELS = "/v1/models"

Render = Callable[[RestError], bytes]


class Api:
    """handlers: by path, of requests with a body."""

    def __init__(self, files: FileService) -> None:
        self._files = files
        self._began = int(time.time())
        self.handlers: Mapping[str, Callable[[Exchange], Awaitable[None]]] = {
            "/v1/audio/transcriptions": partial(self._openai, "transcribe"),
            "/v1/audio/translations": partial(self._openai, "translate"),
            "/v1/listen": self._deepgram,
        }

    def models(self, request: Request) -> Reply:
        """The answer to GET /v1/models and what is below it."""
        try:
            self._files.identify(request)
            names = self._models()
            name = urlsplit(request.path).path.removeprefix(MODELS).strip("/")
            if not name:
                return Reply(
                    HTTPStatus.OK, openai_rest.models(names, self._began), openai_rest.JSON
                )
            if name not in names:
                raise openai_rest.unknown_model(name)
            return Reply(HTTPStatus.OK, openai_rest.model(name, self._began), openai_rest.JSON)
        except RestError as error:
            return _told(error, openai_rest.error_body)

    def _models(self) -> tuple[str, ...]:
        return (self._files.loaded.engine.name, *openai_rest.ALIASES)

    async def _openai(self, task: Task, exchange: Exchange) -> None:
        try:
            label = await self._files.admit(exchange.request)
            with restated():
                upload = await receive_form(exchange, self._files.most_bytes, "file")
            with upload.file:
                wish = openai_rest.wish(upload.fields, task, self._models())
                self._files.check(wish.start)
                async with self._files.transcribed(upload, wish.start, label) as running:
                    await (_stream if wish.stream else _answer)(exchange, wish, running)
        except RestError as error:
            if not exchange.begun:
                raise RefusedError(_told(error, openai_rest.error_body)) from None
            await exchange.write(openai_rest.Events.error(error))
            await exchange.finish()

    async def _deepgram(self, exchange: Exchange) -> None:
        request = str(uuid.uuid4())
        created = datetime.now(UTC)
        try:
            label = await self._files.admit(exchange.request)
            url = urlsplit(exchange.request.path)
            wish = deepgram_rest.wish(parse_qsl(url.query, keep_blank_values=True))
            self._files.check(wish.start)
            deepgram_rest.check_body(exchange.request.headers.get("Content-Type", ""))
            with restated():
                upload = await receive_body(exchange, self._files.most_bytes)
            with upload.file:
                async with self._files.transcribed(
                    upload, wish.start, label, raw=wish.raw
                ) as running:
                    finals = await _all(running)
                    account = deepgram_rest.Account(
                        request=request,
                        model=self._files.loaded.engine.name,
                        sha256=await asyncio.to_thread(_sha256, upload.file),
                        created=created,
                        duration=running.transcription.duration,
                        channels=running.channels,
                    )
                body = deepgram_rest.transcript(wish, finals, account)
            headers = {"dg-request-id": request}
            await exchange.reply(Reply(HTTPStatus.OK, body, deepgram_rest.JSON, headers))
        except RestError as error:
            raise RefusedError(
                _told(error, partial(deepgram_rest.error_body, request=request))
            ) from None


async def _all(running: Running) -> list[Final]:
    return [final async for final in running.finals]


async def _answer(exchange: Exchange, wish: openai_rest.Wish, running: Running) -> None:
    finals = await _all(running)
    kind, body = openai_rest.transcript(wish, finals, running.transcription.duration)
    await exchange.reply(Reply(HTTPStatus.OK, body, kind))


async def _stream(exchange: Exchange, _wish: openai_rest.Wish, running: Running) -> None:
    events = openai_rest.Events()
    headers = {"Content-Type": openai_rest.EVENTS, "Cache-Control": "no-store"}
    await exchange.begin(HTTPStatus.OK, headers)
    async for final in running.finals:
        await exchange.write(events.delta(final))
    await exchange.write(events.done(running.transcription.duration))
    await exchange.finish()


def _sha256(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while block := file.read(2**20):
        digest.update(block)
    return digest.hexdigest()


def _told(error: RestError, render: Render) -> Reply:
    headers = {}
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = RETRY_AFTER
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="captiond"'
    return Reply(error.status, render(error), openai_rest.JSON, headers)
