import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.ring_buffer import AudioRingBuffer


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40)), max_size=30))
def test_the_tape_reads_what_was_written_and_not_forgotten(steps: list[tuple[int, int]]) -> None:
    buffer = AudioRingBuffer(100)
    written = np.zeros(0, np.float32)
    kept = 0
    for samples, back in steps:
        kept = max(kept, len(written) - min(back, 70))
        buffer.forget(kept)
        fresh = np.arange(len(written), len(written) + samples, dtype=np.float32)
        buffer.append(fresh)
        written = np.concatenate([written, fresh])
        np.testing.assert_array_equal(buffer.read(kept, buffer.stop), written[kept:])
    if kept:
        with pytest.raises(AssertionError):
            buffer.read(kept - 1, kept)
