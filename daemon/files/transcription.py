"""One recording's way through the recogniser: blocks of samples in, finals out, as they come.

The same stream as a live session's (streaming/session.py), without partials, and fed as fast as its finals come
back. What it computes runs beside the event loop, a block at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial

from daemon.recognition import request_builder
from daemon.recognition.request_queue import Result, Work
from daemon.sessions.live_session import Service
from daemon.sessions.transcripts import Transcript
from model.engine.requests import Failure
from streaming.protocol import SAMPLE_RATE, Closed, Error, Final, Start
from streaming.session import Output, Session
from streaming.utterance import Decode

AHEAD = (
    90 * SAMPLE_RATE
)  # samples that may await their finals, so that the recogniser always has work
BLOCK_SECONDS = 2.0


class RecognitionError(Exception):
    """An utterance could not be recognised; the text says why."""


class Transcription:
    """A recording of the format that `start` announces. label: of its client's token.

    duration: seconds of audio that were read. recognised: told how many more seconds have their final.
    """

    def __init__(
        self,
        name: str,
        label: str,
        start: Start,
        service: Service,
        recognised: Callable[[float], None],
    ) -> None:
        self.duration = 0.0
        self._name = name
        self._label = label
        self._start = start
        self._service = service
        self._recognised = recognised
        self._results: asyncio.Queue[tuple[Decode, Result, float]] = asyncio.Queue()
        self._told = 0.0
        self._closed: Closed | None = None
        self._transcript: Transcript | None = None

    async def finals(self, blocks: AsyncIterator[bytes]) -> AsyncIterator[Final]:
        """The finals in order. Raises RecognitionError, and what reading the blocks raises."""
        stream = await asyncio.to_thread(Session, self._start, self._service.settings)
        self._transcript = self._service.transcript(self._name, self._label, self._start)
        try:
            async for block in blocks:
                outputs = await asyncio.to_thread(_feed, stream, block)
                self.duration = stream.received / SAMPLE_RATE
                for final in self._carry_out(outputs):
                    yield final
                while stream.pending_samples > AHEAD:
                    for final in self._carry_out(await self._next(stream)):
                        yield final
            for final in self._carry_out(await asyncio.to_thread(stream.stop)):
                yield final
            while self._closed is None:
                for final in self._carry_out(await self._next(stream)):
                    yield final
        finally:
            self._service.scheduler.cancel(self._name)
            if self._transcript is not None:
                self._transcript.close(self._closed)

    async def _next(self, stream: Session) -> list[Output]:
        decode, result, milliseconds = await self._results.get()
        if isinstance(result, Failure):
            raise RecognitionError(result.message)
        return stream.accept(decode, request_builder.hypothesis(result), milliseconds)

    def _carry_out(self, outputs: Iterable[Output]) -> list[Final]:
        finals = []
        for output in outputs:
            match output:
                case Decode(final=True):
                    self._submit(output)
                case Final():
                    finals.append(output)
                    self._take(output)
                case Closed():
                    self._closed = output
                    self._progress(self.duration)
                case Error():
                    raise RecognitionError(output.message)
                case _:
                    pass  # nobody watches a file being spoken, nor waits for its pauses
        return finals

    def _submit(self, decode: Decode) -> None:
        self._service.scheduler.submit(
            Work(
                session=self._name,
                utterance=decode.utterance,
                final=True,
                file=True,
                request=request_builder.request(self._start, decode),
                done=partial(self._done, decode),
            )
        )

    def _done(self, decode: Decode, result: Result, milliseconds: float) -> None:
        self._results.put_nowait((decode, result, milliseconds))

    def _take(self, final: Final) -> None:
        self._progress(final.end)
        if self._transcript is not None:
            self._transcript.final(final)

    def _progress(self, reached: float) -> None:
        self._recognised(max(reached - self._told, 0.0))
        self._told = max(reached, self._told)


def _feed(stream: Session, block: bytes) -> list[Output]:
    outputs = stream.feed(block)
    while stream.unprocessed:
        outputs += stream.process()
    return outputs


async def in_blocks(
    pieces: AsyncIterator[bytes], bytes_per_second: int, most_seconds: float
) -> AsyncIterator[bytes]:
    """The pieces, joined to a size that is worth a thread. Raises TooLongError beyond `most_seconds`."""
    size = int(BLOCK_SECONDS * bytes_per_second)
    waiting = bytearray()
    taken = 0
    async for piece in pieces:
        taken += len(piece)
        if taken > most_seconds * bytes_per_second:
            raise TooLongError(most_seconds)
        waiting += piece
        if len(waiting) >= size:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


class TooLongError(Exception):
    """The recording is longer than is taken."""

    def __init__(self, most_seconds: float) -> None:
        super().__init__(
            f"the recording is longer than the {most_seconds:g} seconds that are taken"
        )


async def read_file(read: Callable[[int], bytes], size: int) -> AsyncIterator[bytes]:
    """Blocks of a file on disk, which holds nothing but samples."""
    while block := await asyncio.to_thread(read, size):
        yield block
