"""captiond's own protocol, `captiond.v1` (streaming/protocol.py), which needs no translation."""

from collections.abc import Iterable

from streaming.dialects.dialect import Action, Dialect, Opening, Reply, Told
from streaming.protocol import decode_client, encode


class Native(Dialect):
    """Text frames are messages, binary ones audio."""

    name = "captiond"

    def __init__(self, _opening: Opening) -> None:
        pass

    def receive(self, frame: str | bytes) -> Iterable[Action]:
        """The message itself."""
        yield decode_client(frame) if isinstance(frame, str) else frame

    def encode(self, message: Told) -> Iterable[str]:
        """The message itself."""
        assert not isinstance(message, Reply)
        return (encode(message),)
