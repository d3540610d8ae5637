"""Transcripts on disk: JSON lines, SRT and WebVTT for each session, written at each final.

One thread does all writing, so that a slow disk delays no caption. A name is made of the time and the
session's name, which are ours: nothing that a client sends reaches the file system but as content.

Safe against a crash in mid-write: a piece is one write, synced, and what a crash left of one is cut
off at the next start. Where a write fails, a full disk say, the file is cut back to what was whole,
and the piece is tried again with the next one.
"""

import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from daemon.config import ConfigError
from streaming.protocol import Closed, Final, encode
from streaming.subtitles import Subtitles

logger = logging.getLogger(__name__)

MIB = 2**20
# Most pieces in memory: those that the disk refused of one session, those it has yet to try of all.
MOST_PENDING = 1_000
TAIL = 2**16  # bytes in which a broken last piece is looked for
PIECE_END = {".jsonl": b"\n", ".srt": b"\n\n", ".vtt": b"\n\n"}
NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z-[0-9a-f]{8}(\.\d+)?\.(jsonl|srt|vtt)")


class Transcripts:
    """The folder, its thread, and the promise to keep it within `keep_mb`.

    writing: files of transcripts that are not closed. failed: called, in any thread, for each piece that
    is not written now. Raises ConfigError where the folder cannot be written to.
    """

    def __init__(
        self, folder: str, file_mb: float, keep_mb: float, failed: Callable[[], object]
    ) -> None:
        self.folder = Path(folder)
        self.limit(file_mb, keep_mb)
        self.failed = failed
        self.writing: set[Path] = set()
        self._room = threading.Semaphore(MOST_PENDING)
        self._takes = True
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o750)
            for path in parts(self.folder):
                cut_incomplete_piece(path)
            probe = self.folder / ".captiond"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"transcripts cannot be written to {folder}: {error.strerror}"
            ) from None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="transcripts")

    def limit(self, file_mb: float, keep_mb: float) -> None:
        """Sizes from now on: after which a part ends, and of all that is kept."""
        self.file_bytes = int(file_mb * MIB)
        self.keep_bytes = int(keep_mb * MIB)

    def open(self, session: str, about: dict[str, str]) -> "Transcript":
        """Begin the transcript of `session`; `about` stands in its first line."""
        return Transcript(self, session, datetime.now(UTC), about)

    def submit_anyway(self, work: Callable[[], object]) -> None:
        """Have the thread begin or end a transcript, however much it has to do."""
        self._thread.submit(work)

    def submit(self, work: Callable[[], object]) -> None:
        """Have the thread do `work`, after all that it was given before.

        For a disk that hangs, and takes nothing at all, no more is remembered than for one that refuses.
        """
        if not self._room.acquire(blocking=False):
            if self._takes:
                logger.error("the disk of %s takes nothing: transcripts have gaps", self.folder)
            self._takes = False
            self.failed()
            return
        if not self._takes:
            logger.info("the disk of %s takes transcripts again", self.folder)
        self._takes = True
        self._thread.submit(work).add_done_callback(lambda _: self._room.release())

    def stop(self) -> None:
        """Wait until all is written."""
        self._thread.shutdown()

    def opened(self, paths: Iterable[Path]) -> None:
        """These are written to, and stay; others may have to go. In the thread."""
        self.writing.update(paths)
        sizes = {
            path: size for path in sorted(parts(self.folder)) if (size := _size(path)) is not None
        }
        total = sum(sizes.values())
        for path, size in sizes.items():
            if total <= self.keep_bytes:
                break
            if path in self.writing:
                continue
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("%s should go, and cannot be removed: %s", path.name, error)
                continue
            total -= size
            logger.info("%s is removed: transcripts_keep_mb is reached", path.name)

    def closed(self, paths: Iterable[Path]) -> None:
        """Nothing more is written to these. In the thread."""
        self.writing.difference_update(paths)


class Transcript:
    """One session's. `final` and `close` return at once; the thread does the rest, in order."""

    def __init__(
        self, home: Transcripts, session: str, began: datetime, about: dict[str, str]
    ) -> None:
        self._home = home
        self._session = session
        self._stem = f"{began:%Y-%m-%dT%H%M%SZ}-{session}"
        self._part = 0
        self._subtitles = {".srt": Subtitles(vtt=False), ".vtt": Subtitles(vtt=True)}
        self._files: dict[str, _File] = {}
        self._pending: dict[str, deque[bytes]] = {
            kind: deque(maxlen=MOST_PENDING) for kind in PIECE_END
        }
        self._well = True
        first = {"type": "session", "session": session, "began": began.isoformat(), **about}
        head = msgspec.json.encode(first).decode() + "\n"
        home.submit_anyway(lambda: self._write({".jsonl": head}))

    def final(self, final: Final) -> None:
        """Write a final."""
        pieces = {".jsonl": encode(final) + "\n"}
        pieces |= {kind: form.render(final) for kind, form in self._subtitles.items()}
        self._home.submit(lambda: self._write(pieces))

    def close(self, closed: Closed | None) -> None:
        """The session is over; `closed` where it came to its end."""
        last = {".jsonl": encode(closed) + "\n"} if closed is not None else {}
        self._home.submit_anyway(lambda: self._close(last))

    def _write(self, pieces: dict[str, str]) -> None:
        for kind, piece in pieces.items():
            if piece:
                self._pending[kind].append(piece.encode())
        try:
            self._write_pending()
        except OSError as error:
            if self._well:
                logger.error(  # noqa: TRY400 - it says all
                    "session %s: no transcript is written: %s",
                    self._session,
                    error,
                    extra={"session": self._session},
                )
            self._well = False
            self._home.failed()
        else:
            if not self._well:
                logger.info(
                    "session %s: the transcript is written again",
                    self._session,
                    extra={"session": self._session},
                )
            self._well = True

    def _write_pending(self) -> None:
        if not self._files or self._files[".jsonl"].size > self._home.file_bytes:
            self._begin_part()
        for kind, waiting in self._pending.items():
            if waiting:
                self._files[kind].append(b"".join(waiting))
                waiting.clear()

    def _begin_part(self) -> None:
        part = f".{self._part + 1}" if self._part else ""
        with ExitStack() as undo:
            files: dict[str, _File] = {}
            for kind in PIECE_END:
                files[kind] = _File(self._home.folder / f"{self._stem}{part}{kind}")
                undo.callback(files[kind].remove)
            for kind, form in self._subtitles.items():
                files[kind].append(form.header.encode())
            undo.pop_all()
        self._end_part()
        self._files = files
        self._part += 1
        self._home.opened(file.path for file in files.values())

    def _end_part(self) -> None:
        for file in self._files.values():
            file.close()
        self._home.closed(file.path for file in self._files.values())

    def _close(self, last: dict[str, str]) -> None:
        self._write(last)
        self._end_part()


def parts(folder: Path) -> list[Path]:
    """The files of transcripts in `folder`."""
    return [path for path in folder.iterdir() if NAME.fullmatch(path.name)]


def _size(path: Path) -> int | None:
    """In bytes; None where somebody has removed it."""
    try:
        return path.stat().st_size
    except OSError:
        return None


class _File:
    """A new file, appended to. `size` counts what is surely there, in bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)

    def append(self, data: bytes) -> None:
        """All of `data`, or nothing of it and OSError."""
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)

    def close(self) -> None:
        """No more is written."""
        os.close(self._file)

    def remove(self) -> None:
        """It was begun in vain."""
        self.close()
        self.path.unlink()


def cut_incomplete_piece(path: Path) -> None:
    """Cut off what a crash left of a piece. Raises OSError."""
    end = PIECE_END[path.suffix]
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(size - TAIL, 0))
        tail = file.read()
        if tail and not tail.endswith(end):
            file.truncate(start + tail.rfind(end) + len(end) if end in tail else start)
