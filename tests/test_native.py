import pytest

from streaming.dialects.native import Native
from streaming.protocol import Flushed, ProtocolError, Stop, encode
from tests.support.dialects import opening


def test_messages_are_themselves() -> None:
    dialect = Native(opening())
    assert list(dialect.open()) == []
    assert list(dialect.receive(b"audio")) == [b"audio"]
    assert list(dialect.receive('{"type": "stop"}')) == [Stop()]
    assert list(dialect.encode(Flushed(at=1.0))) == [encode(Flushed(at=1.0))]
    assert dialect.close(4000, "idle") == (4000, "idle")


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(ProtocolError):
        list(Native(opening()).receive("no"))
