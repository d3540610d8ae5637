from model.bench.passes import CUT_VOCABULARY, ROWS, TOKENS, passes
from model.checkpoints.random_weights import random_checkpoint, shape_config
from tests.support.tiny import SMALL


def test_every_pass_is_timed() -> None:
    """Clips up to the whole window that the model has; rows and tokens; both draft vocabularies."""
    lines: list[str] = []
    config = shape_config("tiny", **(SMALL | {"max_source_positions": 700}))
    found = passes(
        random_checkpoint("small", config),
        device="cpu",
        repeats=1,
        warm_ups=1,
        tell=lines.append,
        window="speech",
    )
    assert lines == ["passes of small"]
    assert [row["window_s"] for row in found["encode_ms"]] == [8.02, 6.82, 9.22, 14.0]
    assert [row["rows"] for row in found["target_ms"]] == list(ROWS)
    for row in found["target_ms"]:
        assert list(row["tokens"]) == [str(count) for count in TOKENS]
        assert row["nine_to_one"] == row["tokens"]["9"] / row["tokens"]["1"]
    assert [row["vocabulary"] for row in found["draft_ms"]] == [300, min(CUT_VOCABULARY, 300)]
    times = [ms for row in found["draft_ms"] for ms in row["rows"].values()]
    times += [ms for row in found["target_ms"] for ms in row["tokens"].values()]
    times += [row[key] for row in found["encode_ms"] for key in ("mel", "encoder", "cross")]
    assert len(times) == 2 * 3 + 3 * 5 + 4 * 3
    assert list(found["head_ms"]) == [str(count) for count in TOKENS]
    times += found["head_ms"].values()
    assert min(times) > 0
