from model.engine.batch_sizes import BatchSizes

EXACT = BatchSizes(static=False, window=1500, positions=457, whole=False)
STATIC = BatchSizes(static=True, window=1500, positions=457, whole=True)


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
    assert EXACT.encoder_lens([500, 1500]) == (500, 1500)
    assert STATIC.encoder_lens([500, 700, 800]) == (1500,) * 4
    padded = BatchSizes(static=True, window=1500, positions=457, whole=False)
    assert padded.encoder_lens([500, 700, 800]) == (500, 700, 800, 1)
