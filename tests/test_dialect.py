import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.dialects.dialect import AudioClock, line, parsed
from streaming.protocol import Encoding, Start
from tests.support.dialects import NAME, opening


def test_a_name_makes_a_uuid() -> None:
    assert opening().uuid == f"{NAME[:8]}-{NAME[8:12]}-{NAME[12:16]}-{NAME[16:20]}-{NAME[20:]}"


@pytest.mark.parametrize(("encoding", "size"), [("s16le", 2), ("f32le", 4), ("mulaw", 1)])
def test_the_clock_counts_audio_however_it_is_cut(encoding: Encoding, size: int) -> None:
    clock = AudioClock(Start(encoding=encoding, rate=8_000, channels=2))
    for length in (1, 7_999 * size * 2, 2 * size - 1):
        clock.take(bytes(length))
    assert clock.seconds == 1.0


@given(st.binary() | st.text())
def test_only_objects_are_parsed(frame: str | bytes) -> None:
    found = parsed(frame)
    assert found is None or isinstance(found, dict)


def test_a_line_is_an_object() -> None:
    assert json.loads(line(type="x", n=[1])) == {"type": "x", "n": [1]}
    assert parsed(line(type="x")) == {"type": "x"}
    assert parsed("[" * 100_000) is None
