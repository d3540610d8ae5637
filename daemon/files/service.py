"""The recordings that are transcribed: who may send one, how many at once, and what comes of it.

Every failure is raised as a RestError, for an API to put in its own form.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus

import msgspec
from websockets.http11 import Request

from daemon.files.decoder import BLOCK, DecodingError, Sound, decoded
from daemon.files.transcription import (
    RecognitionError,
    TooLongError,
    Transcription,
    in_blocks,
    read_file,
)
from daemon.files.upload import Upload, UploadError
from daemon.monitoring.health import Health
from daemon.monitoring.metrics import Metrics
from daemon.sessions.admission import Admission, Refusal, capacity_refusal
from daemon.sessions.live_session import Service
from streaming.dialects.rest import RestError
from streaming.protocol import SAMPLE_BYTES, Final, ProtocolError, Start

WAITING = 8  # recordings that may wait, for each that is transcribed
RATES = range(4_000, 384_001)  # Hz, as `start` takes them


@dataclass(frozen=True, slots=True)
class Running:
    """A recording that is being transcribed. finals: to be read once, in order."""

    transcription: Transcription
    channels: int
    finals: AsyncIterator[Final]


class FileService:
    """What the APIs share. service: None while the model loads. warmth: waits for it, where that is promised."""

    def __init__(
        self,
        admission: Admission,
        metrics: Metrics,
        health: Callable[[], Health],
        service: Callable[[], Service | None],
        warmth: Callable[[], Awaitable[None]],
    ) -> None:
        self.metrics = metrics
        self._admission = admission
        self._health = health
        self._service = service
        self._warmth = warmth
        self._running = 0
        self._waiting = 0
        self._one_ended = asyncio.Condition()

    @property
    def most_bytes(self) -> int:
        """Of one recording."""
        return int(self._admission.config.max_file_mb * 1e6)

    @property
    def loaded(self) -> Service:
        """What serves. Raises RestError while the model loads."""
        service = self._service()
        if service is None:
            raise RestError(HTTPStatus.SERVICE_UNAVAILABLE, "captiond is still loading its model")
        return service

    def identify(self, request: Request) -> str:
        """The label of the client's token."""
        guest = self._admission.authenticate(request)
        if isinstance(guest, Refusal):
            raise self._refused(guest)
        return guest

    async def admit(self, request: Request) -> str:
        """The label of the client's token, where its recording may come now.

        Sessions take no room from recordings: those wait.
        """
        label = self.identify(request)
        await self._warmth()
        config = self._admission.config
        refusal = capacity_refusal(self._health(), config, of_token=0, returning=True)
        if refusal is not None:
            raise self._refused(refusal)
        if self._waiting >= WAITING * config.max_files:
            text = "too many recordings wait; try again in a while"
            raise RestError(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return label

    def check(self, start: Start) -> None:
        """Whether the model can do what `start` asks."""
        with restated():
            self.loaded.check(start)

    @asynccontextmanager
    async def transcribed(
        self, upload: Upload, start: Start, label: str, *, raw: bool = False
    ) -> AsyncIterator[Running]:
        """Transcribe, in its turn. raw: the file is of the format that `start` names, without a header."""
        async with self._turn(), self._counted():
            with restated():
                async with _sound(upload, start, raw=raw) as sound:
                    yield self._begin(sound, start, label)

    def _begin(self, sound: Sound, start: Start, label: str) -> Running:
        most = self._admission.config.max_file_seconds
        if sound.duration > most:
            raise TooLongError(most)
        if sound.rate not in RATES:
            raise DecodingError(f"a sample rate of {sound.rate} Hz is not taken")
        start = msgspec.structs.replace(
            start, encoding=sound.encoding, rate=sound.rate, channels=sound.channels
        )
        name = f"file-{secrets.token_hex(4)}"
        recognised = self.metrics.file_audio.inc
        transcription = Transcription(name, label, start, self.loaded, recognised)
        per_second = sound.rate * sound.channels * SAMPLE_BYTES[sound.encoding]
        blocks = in_blocks(sound.blocks, per_second, most)
        return Running(transcription, sound.channels, _restated(transcription.finals(blocks)))

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        self._waiting += 1
        self.metrics.files_waiting.set(self._waiting)
        try:
            async with self._one_ended:
                await self._one_ended.wait_for(self._has_room)
                self._running += 1
        finally:
            self._waiting -= 1
            self.metrics.files_waiting.set(self._waiting)
        self.metrics.files_running.set(self._running)
        try:
            yield
        finally:
            self._running -= 1
            self.metrics.files_running.set(self._running)
            async with self._one_ended:
                self._one_ended.notify()

    def _has_room(self) -> bool:
        return self._running < self._admission.config.max_files

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        outcome = "abandoned"
        try:
            yield
            outcome = "done"
        except RestError as error:
            outcome = "refused" if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else "failed"
            raise
        finally:
            self.metrics.files.labels(outcome).inc()

    def _refused(self, refusal: Refusal) -> RestError:
        self.metrics.refused.labels(refusal.reason).inc()
        code = "invalid_api_key" if refusal.reason == "token" else None
        return RestError(refusal.reply.status, str(refusal.reply.body).strip(), code=code)


@contextmanager
def restated() -> Iterator[None]:
    """Whatever may be wrong with a recording, or with recognising it, as a RestError."""
    try:
        yield
    except UploadError as error:
        raise RestError(error.status, str(error)) from None
    except TooLongError as error:
        raise RestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from None
    except (DecodingError, ProtocolError) as error:
        raise RestError(HTTPStatus.BAD_REQUEST, str(error)) from None
    except RecognitionError as error:
        raise RestError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from None


async def _restated(finals: AsyncIterator[Final]) -> AsyncIterator[Final]:
    """The finals, closed together with their reader."""
    with restated():
        async with aclosing(finals) as read:  # type: ignore[type-var]  # it is a generator
            async for final in read:
                yield final


@asynccontextmanager
async def _sound(upload: Upload, start: Start, *, raw: bool) -> AsyncIterator[Sound]:
    if not raw:
        async with decoded(upload.file) as sound:
            yield sound
        return
    blocks = read_file(upload.file.read, BLOCK)
    yield Sound(start.encoding, start.rate, start.channels, 0.0, blocks)
