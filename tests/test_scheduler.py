import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest

from daemon.recognition.request_queue import FileThrottle, Result, Work
from daemon.recognition.scheduler import Scheduler
from model.engine.requests import Failure, Request, RequestOutput
from tests.support.fakes import PATIENCE, ScriptedEngine, work
from tests.support.wire import until


@dataclass
class Clock:
    """Time goes on as the test says. now: seconds."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


def engine_thread() -> threading.Thread:
    """The scheduler's."""
    return next(thread for thread in threading.enumerate() if thread.name == "engine")


class Clients:
    """Submits by name, and keeps what came back: name → result."""

    def __init__(self, scheduler: Scheduler, engine: ScriptedEngine, clock: "Clock") -> None:
        self.scheduler = scheduler
        self.engine = engine
        self.clock = clock
        self.results: dict[str, Result] = {}
        self.milliseconds: dict[str, float] = {}
        self._changed = asyncio.Event()

    def submit(self, *submitted: str) -> None:
        for name in submitted:
            one = work(name, lambda *answer, name=name: self._done(name, *answer))
            self.scheduler.submit(replace(one, submitted=self.clock.now))

    async def expect(self, *expected: str) -> None:
        """Wait until exactly these have come back."""
        async with asyncio.timeout(PATIENCE):
            while len(self.results) < len(expected):
                self._changed.clear()
                await self._changed.wait()
        assert sorted(self.results) == sorted(expected)

    async def hold(self, *submitted: str) -> None:
        """Submit these, and wait until the engine is inside a round that waits for its release."""
        self.engine.hold()
        self.submit(*submitted)
        await self.held()

    async def held(self) -> None:
        """Wait until the engine is inside a round that was told to wait."""
        assert await asyncio.to_thread(self.engine.entered.wait, PATIENCE)

    def _done(self, name: str, result: Result, milliseconds: float) -> None:
        assert name not in self.results, "two results"
        assert threading.current_thread() is threading.main_thread()
        self.results[name] = result
        self.milliseconds[name] = milliseconds
        self._changed.set()


@asynccontextmanager
async def scheduling(engine: ScriptedEngine) -> AsyncIterator[Clients]:
    clock = Clock()
    scheduler = Scheduler(lambda: engine, asyncio.get_running_loop(), clock)
    assert await asyncio.wrap_future(scheduler.start()) is engine
    try:
        yield Clients(scheduler, engine, clock)
    finally:
        engine.release()
        assert await asyncio.to_thread(scheduler.stop, PATIENCE)
        assert not [thread for thread in threading.enumerate() if thread.name == "engine"]


async def test_results_come_back_on_the_loop() -> None:
    engine = ScriptedEngine()
    async with scheduling(engine) as clients:
        clients.submit("a0f", "b0p")
        await clients.expect("a0f", "b0p")
        result = clients.results["a0f"]
        assert isinstance(result, RequestOutput)
        assert result.text == "1600"
        assert clients.milliseconds["a0f"] >= 0
        stats = clients.scheduler.stats()
        assert (stats.finals, stats.partials, stats.failed) == (1, 1, 0)
        assert (stats.waiting, stats.running, stats.lag, stats.idle) == (0, 0, 0.0, 0.0)
    assert engine.threads == {"engine"}


async def test_work_joins_between_two_rounds() -> None:
    engine = ScriptedEngine(slots=2)
    async with scheduling(engine) as clients:
        await clients.hold("x0f")
        clients.submit("a0p", "a1f", "a2f", "b0f", "c0p", "c0p")
        stats = clients.scheduler.stats()
        assert (stats.waiting, stats.running, stats.superseded) == (4, 1, 2)
        engine.release()
        await clients.expect("x0f", "a1f", "a2f", "b0f", "c0p")
    assert [request.prompt for request in engine.admitted] == ["x0f", "a1f", "b0f", "a2f", "c0p"]
    assert engine.most_occupied == 2


async def test_lag_is_the_age_of_the_oldest_final_waiting_or_running() -> None:
    engine = ScriptedEngine(slots=1)
    async with scheduling(engine) as clients:
        await clients.hold("a0p")
        assert clients.scheduler.stats().lag == 0.0
        clients.clock.now += 1.0
        clients.submit("b0f")
        clients.clock.now += 2.5
        assert clients.scheduler.stats().lag == 2.5
        assert clients.scheduler.stats().idle == 3.5
        engine.release()
        await clients.expect("a0p", "b0f")


async def test_time_without_work_is_no_lack_of_progress() -> None:
    """The first request after a quiet night does not make the daemon look stalled."""
    engine = ScriptedEngine()
    async with scheduling(engine) as clients:
        clients.clock.now += 3600.0
        assert clients.scheduler.stats().idle == 0.0
        await clients.hold("a0f")
        assert clients.scheduler.stats().idle == 0.0


async def test_a_session_that_leaves_frees_queue_and_slots() -> None:
    engine = ScriptedEngine(slots=1)
    async with scheduling(engine) as clients:
        await clients.hold("a0f")
        clients.submit("a1f", "a2p", "b0f")
        clients.scheduler.cancel("a")
        stats = clients.scheduler.stats()
        assert (stats.waiting, stats.running) == (1, 0)
        engine.release()
        await clients.expect("b0f")
    assert [request.prompt for request in engine.cancelled] == ["a0f"]


async def test_a_round_that_fails_costs_nobody_a_final(caplog: pytest.LogCaptureFixture) -> None:
    """Its finals are tried again, each alone in the engine; its partials are dropped."""
    company: list[int] = []

    def text(request: Request) -> str:
        company.append(len(engine.occupied))
        if len(engine.occupied) > 1:
            raise MemoryError("too much at once")
        return "heard"

    engine = ScriptedEngine(slots=4, text=text)
    async with scheduling(engine) as clients:
        await clients.hold("x0f")
        clients.submit("a0f", "b0p", "c0f")
        engine.release()
        await clients.expect("x0f", "a0f", "c0f")
        assert company == [1, 3, 1, 1]
        assert [record.exc_info is not None for record in caplog.records] == [True]
        assert all(isinstance(result, RequestOutput) for result in clients.results.values())
        stats = clients.scheduler.stats()
        assert (stats.finals, stats.failed, stats.superseded) == (3, 0, 1)
        assert (stats.waiting, stats.running) == (0, 0)


async def test_the_final_that_fails_alone_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    def text(request: Request) -> str:
        if request.prompt == "b0f":
            raise RuntimeError("out of luck")
        return "heard"

    engine = ScriptedEngine(slots=4, text=text)
    async with scheduling(engine) as clients:
        await clients.hold("x0f")
        clients.submit("a0f", "b0f", "c0f")
        engine.release()
        await clients.expect("x0f", "a0f", "b0f", "c0f")
        assert [record.exc_info is not None for record in caplog.records] == [True, True]
        failure = clients.results.pop("b0f")
        assert isinstance(failure, Failure)
        assert failure.message == "the recogniser failed: out of luck"
        assert all(isinstance(result, RequestOutput) for result in clients.results.values())
        assert clients.scheduler.stats().failed == 1
        clients.submit("d0f")
        await clients.expect("x0f", "a0f", "c0f", "d0f")


async def test_a_fault_that_passes_costs_nothing() -> None:
    faults = [RuntimeError("a passing fault")]

    def text(_request: Request) -> str:
        if faults:
            raise faults.pop()
        return "heard"

    async with scheduling(ScriptedEngine(text=text)) as clients:
        clients.submit("a0f")
        await clients.expect("a0f")
        assert isinstance(clients.results["a0f"], RequestOutput)
        assert clients.scheduler.stats().failed == 0


async def test_a_session_that_leaves_is_not_tried_again() -> None:
    def text(request: Request) -> str:
        if len(engine.occupied) > 1:
            engine.hold()  # the round of the first retry
            raise MemoryError("too much at once")
        return "heard"

    engine = ScriptedEngine(slots=4, text=text)
    async with scheduling(engine) as clients:
        await clients.hold("x0f")
        clients.submit("a0f", "b0f", "c0f")
        engine.release()
        await clients.expect("x0f")
        await clients.held()
        clients.scheduler.cancel("b")
        clients.scheduler.cancel("a")  # which is being tried
        engine.release()
        await clients.expect("x0f", "c0f")
    assert not engine.occupied


class Jammed(ScriptedEngine):
    """No round of it succeeds, and it cannot be emptied for the `last` time."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self._last = last

    def step(self) -> list[Result]:
        raise RuntimeError("the device is lost")

    def cancel(self, request: Request) -> None:
        super().cancel(request)
        if len(self.cancelled) == self._last:
            raise RuntimeError("the device is still lost")


@pytest.mark.parametrize("last", [1, 2])
async def test_an_engine_that_cannot_be_emptied_ends_the_thread_and_shows_as_a_stall(
    last: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether its final waits for another try or has had it; what comes and goes hides nothing."""
    async with scheduling(Jammed(last)) as clients:
        thread = engine_thread()
        clients.submit("a0f")
        await until(lambda: not thread.is_alive())
        assert "only a restart helps" in caplog.text
        for idle, name in enumerate(("b0p", "c0f", "d0f"), start=1):
            clients.clock.now += 1.0
            clients.submit(name)
            stats = clients.scheduler.stats()
            assert stats.idle == idle
        assert stats.waiting + stats.running == 4
        assert not clients.results
        for session in "abcd":
            clients.scheduler.cancel(session)
        assert clients.scheduler.stats().waiting == 0
        assert clients.scheduler.stats().idle == 3.0
        clients.submit("e0f")
        assert clients.scheduler.stats().idle == 3.0


async def test_a_request_that_the_engine_refuses_fails_alone() -> None:
    engine = ScriptedEngine()
    async with scheduling(engine) as clients:
        refused: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        request = Request(np.zeros(1600, np.float32), language="xx")
        clients.submit("a0f")
        clients.scheduler.submit(Work("b", 0, True, request, lambda r, _: refused.set_result(r)))
        result = await asyncio.wait_for(refused, PATIENCE)
        assert isinstance(result, Failure)
        assert "unknown language" in result.message
        await clients.expect("a0f")


async def test_a_failure_of_the_engine_is_passed_on() -> None:
    async with scheduling(ScriptedEngine(text=lambda _: "unspeakable")) as clients:
        clients.submit("a0f")
        await clients.expect("a0f")
        assert isinstance(clients.results["a0f"], Failure)


async def test_an_idle_scheduler_computes_nothing() -> None:
    engine = ScriptedEngine()
    async with scheduling(engine) as clients:
        clients.submit("a0f")
        await clients.expect("a0f")
        ident = engine_thread().ident
        assert ident is not None
        spent = time.pthread_getcpuclockid(ident)
        rounds, used = engine.rounds, time.clock_gettime(spent)
        # An absence can be observed only over a while.
        await asyncio.sleep(0.3)
        assert engine.rounds == rounds
        assert time.clock_gettime(spent) - used < 0.1


async def test_stop_gives_up_on_a_round_that_hangs_and_drops_what_waits() -> None:
    engine = ScriptedEngine(slots=1)
    async with scheduling(engine) as clients:
        await clients.hold("a0f", "b0f")
        assert not clients.scheduler.stop(0.0)
        engine.release()
        await clients.expect("a0f")
    stats = clients.scheduler.stats()
    assert (stats.waiting, stats.running, stats.finals) == (1, 0, 1)


async def test_files_make_nobody_late() -> None:
    """However long they wait, a newcomer is welcome."""
    engine = ScriptedEngine()
    async with scheduling(engine) as clients:
        clients.submit("a0f")
        await clients.expect("a0f")
        engine.hold()
        clients.submit("b0x", "b1x")
        await clients.held()
        clients.clock.now += 1.0
        engine.release()
        await clients.expect("a0f", "b0x")
        clients.clock.now += 6.0  # the file's share of the time has not come again
        stats = clients.scheduler.stats()
        assert (stats.waiting, stats.lag, stats.turn, stats.idle) == (1, 0.0, 0.0, 0.0)
        clients.clock.now += FileThrottle.MEMORY
        clients.submit("c0f")
        await clients.expect("a0f", "b0x", "b1x", "c0f")


async def test_a_file_that_is_given_up_frees_its_slots() -> None:
    engine = ScriptedEngine()
    async with scheduling(engine) as clients:
        engine.hold()
        clients.submit("b0x", "b1x")
        await clients.held()
        clients.scheduler.cancel("b")
        clients.submit("a0f")
        engine.release()
        await clients.expect("a0f")
    assert not engine.occupied
