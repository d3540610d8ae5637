"""What a wire protocol is to the daemon: a client's frames in, our messages out to its frames.

A dialect knows no socket, no session and no clock. It turns each frame into *actions*, which the daemon
obeys in order, and each message of the session into frames. What a dialect has to say itself it sends
through the same queue, as a `Reply`, so that it keeps its place among the messages of the session.

`receive` may be a generator: what stands behind a `yield` happens once that action was obeyed, and
never where it was refused.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import msgspec

from streaming.protocol import SAMPLE_BYTES, ClientMessage, ServerMessage, Start
from streaming.settings import Settings

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Opening:
    """How a connection begins.

    query: of its URL, decoded, in order. headers: by lower-case name. name: random, [0-9a-f]{32}; what
    ids are made of. time: Unix seconds. settings: those of the daemon.
    """

    name: str
    query: Query = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    time: float = 0.0
    settings: Settings = field(default_factory=Settings)

    @property
    def uuid(self) -> str:
        """The name in the form of RFC 9562."""
        cuts = (0, 8, 12, 16, 20, 32)
        return "-".join(self.name[a:b] for a, b in itertools.pairwise(cuts))


@dataclass(frozen=True, slots=True)
class Reply:
    """A dialect's own: comes back by `encode`, behind all that the client was told before.

    about: what the dialect makes of it. wrong: whether it tells the client of an error.
    """

    about: Any
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """Asks whether a session could be started so."""

    start: Start


Action = ClientMessage | bytes | Reply | Check
Told = ServerMessage | Reply


class Dialect(Protocol):
    """One connection's. name: in metrics and in the log.

    forgiving: whether a client may go on after an error; in a dialect that is not, one ends the session.
    starts_late: whether it is right for a client to send nothing for long before its first audio.
    """

    name: ClassVar[str]
    forgiving: ClassVar[bool] = True
    starts_late: ClassVar[bool] = False

    def open(self) -> Iterable[Action]:
        """What follows from the connection alone."""
        return ()

    def receive(self, frame: str | bytes) -> Iterable[Action]:
        """What a frame asks for; bytes are audio. Raises ProtocolError."""

    def encode(self, message: Told) -> Iterable[str]:
        """The text frames that tell the client of `message`."""

    def close(self, code: int, reason: str) -> tuple[int, str]:
        """Close code and reason in place of ours (docs/protocol.md has those)."""
        return code, reason


def line(**fields: Any) -> str:
    """A JSON object as a text frame."""
    return msgspec.json.encode(fields).decode()


def parsed(frame: str | bytes) -> dict[str, Any] | None:
    """The JSON object in a frame; None for whatever else it is."""
    try:
        found = msgspec.json.decode(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return found if isinstance(found, dict) else None


class AudioClock:
    """How much audio has come, in seconds, of the format that `start` announces."""

    def __init__(self, start: Start) -> None:
        self._rate = start.rate * start.channels * SAMPLE_BYTES[start.encoding]
        self._bytes = 0

    def take(self, data: bytes) -> None:
        """Count `data`."""
        self._bytes += len(data)

    @property
    def seconds(self) -> float:
        """All of it."""
        return self._bytes / self._rate
