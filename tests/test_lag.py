import asyncio

import pytest

from daemon.sessions.lag import LagMonitor, LagReporter
from streaming.protocol import Lag
from tests.support.fakes import PATIENCE


def test_a_final_in_time_is_never_mentioned() -> None:
    lag_monitor = LagMonitor()
    assert lag_monitor.due is None
    lag_monitor.submitted(0, now=10.0)
    assert lag_monitor.due == 12.0
    lag_monitor.finished(0)
    assert lag_monitor.due is None
    assert lag_monitor.look(now=12.0) is None


def test_lateness_is_told_every_second_and_its_end_once() -> None:
    lag_monitor = LagMonitor()
    lag_monitor.submitted(0, now=10.0)
    lag_monitor.submitted(1, now=11.0)
    assert lag_monitor.look(now=12.0) == Lag(seconds=2.0, shedding="partials")
    assert lag_monitor.due == 13.0
    assert lag_monitor.look(now=13.0) == Lag(seconds=3.0, shedding="partials")
    lag_monitor.finished(0)
    lag_monitor.finished(1)
    lag_monitor.submitted(2, now=13.5)
    assert lag_monitor.due == 14.0
    assert lag_monitor.look(now=14.0) == Lag(seconds=0.5, shedding="nothing")
    assert lag_monitor.outstanding == 1
    assert lag_monitor.due == 15.5
    assert lag_monitor.look(now=15.5) == Lag(seconds=2.0, shedding="partials")


def test_a_session_without_partials_sheds_nothing() -> None:
    lag_monitor = LagMonitor(sheds_partials=False)
    lag_monitor.submitted(0, now=10.0)
    assert lag_monitor.look(now=12.5) == Lag(seconds=2.5, shedding="nothing")


class RecordingClient:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.lags = asyncio.Queue[Lag]()

    def tell(self, message: Lag) -> None:
        self.lags.put_nowait(message)


async def test_whoever_listens_is_told_when_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told while nobody listens; a listener that comes later is, once `watch` is called."""
    monkeypatch.setattr(LagMonitor, "AFTER", 0.01)
    clients: list[RecordingClient] = []
    reporter = LagReporter(lambda: clients[0] if clients else None, sheds_partials=True)
    reporter.submitted(0)
    assert reporter.outstanding == 1
    clients.append(RecordingClient())
    reporter.watch()
    lag = await asyncio.wait_for(clients[0].lags.get(), PATIENCE)
    assert lag.shedding == "partials"
    reporter.finished(0)
    assert reporter.outstanding == 0
    reporter.cancel()
