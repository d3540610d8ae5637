import pytest

from daemon.sessions.rate_limit import BURST, RateLimit


def test_without_a_rate_nobody_waits() -> None:
    limit = RateLimit(0.0)
    limit.take(1e6, now=5.0)
    assert limit.pause(now=5.0) == 0.0


def test_after_a_burst_audio_is_read_at_the_rate() -> None:
    limit = RateLimit(4.0)
    limit.take(BURST, now=100.0)
    assert limit.pause(now=100.0) == 0.0
    limit.take(8.0, now=100.0)
    assert limit.pause(now=100.0) == pytest.approx(2.0)
    assert limit.pause(now=101.5) == pytest.approx(0.5)
    limit.take(4.0, now=102.0)
    assert limit.pause(now=102.0) == pytest.approx(1.0)


def test_time_that_was_not_used_is_saved_up_to_a_burst() -> None:
    limit = RateLimit(2.0)
    limit.take(BURST + 6.0, now=0.0)
    limit.take(BURST, now=1_000.0)
    assert limit.pause(now=1_000.0) == 0.0
