from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.bench import paired_runs
from model.bench.clips import Clip
from model.bench.paired_runs import (
    Gain,
    Transcription,
    gain,
    rounds_of,
    run_paired,
    token_mismatches,
    units_of,
)

CLIPS = [Clip(str(number), np.zeros(16_000, np.float32)) for number in range(5)]


@dataclass(eq=False)
class Scripted:
    """Writes down who read what; says something else the second time if it is unsteady."""

    name: str
    log: list[tuple[str, str]]
    unsteady: bool = False
    calls: list[int] = field(default_factory=list)

    def transcribe(self, clips: Sequence[Clip]) -> list[Transcription]:
        self.log.append((self.name, "".join(clip.name for clip in clips)))
        self.calls.append(len(self.calls))
        extra = self.calls[-1:] if self.unsteady else []
        return [Transcription(clip.name, (int(clip.name), *extra), 1) for clip in clips]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the timed calls will seem to take, in turn."""
    seconds: list[float] = []

    def timed(work: Callable[[], list[Transcription]]) -> tuple[list[Transcription], float]:
        return work(), seconds.pop(0)

    monkeypatch.setattr(paired_runs, "timed", timed)
    return seconds


def test_every_repeat_starts_with_another_contender(clock: list[float]) -> None:
    """And every contender warms up, untimed, on one unit of each size."""
    clock += [1.0] * 27
    log: list[tuple[str, str]] = []
    contenders = [Scripted(name, log) for name in "abc"]
    run_paired(contenders, units_of(CLIPS, 2), repeats=3, warm_ups=2, tell=lambda _: None)
    warm, timed = log[:12], log[12:]
    assert warm == [(c, u) for c in "abc" for u in ("23", "23", "4", "4")]
    order = "abcbcacab"
    assert timed == [(c, unit) for c in order for unit in ("01", "23", "4")]
    assert not clock


def test_times_are_medians_by_unit_and_readings_keep_the_order(clock: list[float]) -> None:
    clock += [1.0, 10.0, 5.0, 30.0, 2.0, 20.0]
    (measurement,) = run_paired(
        [Scripted("a", [])], units_of(CLIPS, 3), repeats=3, warm_ups=0, tell=print
    )
    assert measurement.seconds.tolist() == [2.0, 20.0]
    assert [transcription.text for transcription in measurement.transcriptions] == list("01234")
    assert measurement.unsteady == 0


def test_who_does_not_say_the_same_every_time_is_found_out(clock: list[float]) -> None:
    clock += [1.0] * 4
    (measurement,) = run_paired(
        [Scripted("a", [], unsteady=True)], units_of(CLIPS, 3), repeats=2, warm_ups=0, tell=print
    )
    assert measurement.unsteady == 5


def test_a_gain_is_a_ratio_of_sums() -> None:
    """Of one unit there is no interval; equal ratios everywhere have none to speak of."""
    slow, fast = np.array([4.0, 8.0, 2.0]), np.array([2.0, 4.0, 1.0])
    assert gain(slow, fast) == Gain(2.0, (2.0, 2.0))
    assert gain(slow[:1], fast[:1]) == Gain(2.0, None)


def test_differences_that_are_not_positive_have_no_ratio() -> None:
    """Nor an interval, where a resample might draw them alone."""
    ones = np.ones(2)
    assert gain(ones, np.array([1.0, -1.0])) is None
    assert gain(-ones, ones) is None
    assert gain(ones, np.array([3.0, -1.0])) == Gain(1.0, None)


TIMES = st.lists(st.floats(0.1, 10.0), min_size=2, max_size=20).map(np.array)


@given(TIMES, st.data())
def test_the_interval_is_of_actual_ratios(slow: NDArray[np.float64], data: st.DataObject) -> None:
    fast = np.array([data.draw(st.floats(0.1, 10.0)) for _ in slow])
    found = gain(slow, fast)
    assert found is not None
    assert found.interval is not None
    low, high = found.interval
    ratios = slow / fast
    assert min(ratios) - 1e-9 <= low <= high <= max(ratios) + 1e-9
    assert found == gain(slow, fast)


def test_the_interval_covers_what_it_should() -> None:
    """Of 200 samples whose true ratio is 2, about 95 % of the intervals hold it."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        fast = rng.uniform(1.0, 2.0, 40)
        found = gain(2.0 * fast * rng.uniform(0.5, 1.5, 40), fast)
        assert found is not None
        assert found.interval is not None
        held += found.interval[0] <= 2.0 <= found.interval[1]
    assert 180 <= held <= 200


def test_rounds_count_neither_prefill_nor_first_token() -> None:
    """Two clips of 5 and 3 tokens in 2 and 1 passes: 6 tokens in 3 passes."""
    transcriptions = [
        Transcription("", (1, 2, 3, 4, 5), 4, rounds=2, proposed=8, accepted=3),
        Transcription("", (1, 2, 3), 2, rounds=1, proposed=2, accepted=1),
    ]
    found = rounds_of(transcriptions)
    assert found is not None
    assert (found.alpha, found.tau, found.passes) == (0.4, 2.0, 1.5)
    within = rounds_of(transcriptions, drafted_in_prefill=True)
    assert within is not None
    assert within.tau is None
    assert rounds_of([*transcriptions, Transcription("", (1,), 1)]) is None


def test_tokens_differ_by_clip() -> None:
    base = [Transcription("", (1, 2), 2), Transcription("", (1, 2), 2)]
    assert (
        token_mismatches([Transcription("x", (1, 2), 2), Transcription("", (1, 2, 3), 2)], base)
        == 1
    )
