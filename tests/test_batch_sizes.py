import numpy as np
import pytest

from model.engine.batch_sizes import BatchSizes
from model.engine.requests import Request

EXACT = BatchSizes(static=False, window=1500, positions=457, whole=False)
STATIC = BatchSizes(static=True, window=1500, positions=457, whole=True)


@pytest.mark.parametrize(
    ("seconds", "states"), [(0.1, 500), (4.9, 500), (5.1, 750), (14.0, 1000), (25.1, 1500)]
)
def test_a_fitted_window_is_the_audio_and_five_seconds(seconds: float, states: int) -> None:
    """Rounded up to a multiple of five; a final always has the full window."""
    audio = np.zeros(int(seconds * 16_000), np.float32)
    assert EXACT.states(Request(audio, fitted_window=True)) == states
    assert EXACT.states(Request(audio)) == 1500


def test_static_batches_come_in_buckets() -> None:
    """Otherwise they have the size they have."""
    assert [STATIC.bucket(rows) for rows in (1, 3, 5, 9)] == [1, 4, 8, 16]
    assert [EXACT.bucket(rows) for rows in (1, 3, 5)] == [1, 3, 5]
    assert [STATIC.fitting(rows) for rows in (1, 3, 5, 9)] == [1, 2, 4, 8]
    assert [STATIC.prompt(4), STATIC.prompt(9), STATIC.text(0), STATIC.text(65)] == [8, 240, 0, 224]


def test_attention_looks_at_whole_buffers_where_shapes_are_static() -> None:
    """Otherwise at as many positions as there are, rounded up, and at the valid encoder states."""
    assert [EXACT.kv_len(n) for n in (1, 64, 65, 450)] == [64, 64, 128, 457]
    assert STATIC.kv_len(1) == 457
    assert (EXACT.encoder_len(500), STATIC.encoder_len(500)) == (500, 1500)
