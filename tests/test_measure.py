from collections.abc import Iterator

import pytest

from model.whisper import measure
from model.whisper.measure import least_seconds, median_seconds, timed


class Clock:
    """Tells the times that it was given."""

    def __init__(self, *ticks: float) -> None:
        self._ticks: Iterator[float] = iter(ticks)

    def perf_counter(self) -> float:
        return next(self._ticks)


def test_work_is_timed_and_its_result_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "time", Clock(10.0, 12.5))
    assert timed(lambda: "done") == ("done", 2.5)


def test_the_median_leaves_warm_ups_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five calls, of which three are timed: 1, 7 and 2 s."""
    monkeypatch.setattr(measure, "time", Clock(0.0, 1.0, 1.0, 8.0, 8.0, 10.0))
    calls: list[None] = []
    assert median_seconds(lambda: calls.append(None), repeats=3, warm_ups=2) == 2.0
    assert len(calls) == 5


def test_the_least_is_of_works_that_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once each uncounted, then by turns: 1 and 5 s, 3 and 2 s."""
    monkeypatch.setattr(measure, "time", Clock(0, 1, 1, 6, 6, 9, 9, 11))
    calls: list[str] = []
    works = [lambda: calls.append("a"), lambda: calls.append("b")]
    assert least_seconds(works, rounds=2) == [1, 2]
    assert calls == ["a", "b"] * 3
