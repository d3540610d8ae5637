"""The scheduler: the recogniser's one thread. It decodes the queue's work and delivers results.

It knows no socket, no session and no message: work comes in, results go out on the event loop. Only
this file's thread loads, warms and uses the engine. daemon/recognition/request_queue.py decides what
comes next.
"""

import logging
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from daemon.recognition.request_queue import (
    FileThrottle,
    PartialThrottle,
    RequestQueue,
    Result,
    Work,
)
from model.engine.requests import Failure, Request

logger = logging.getLogger(__name__)


class Engine(Protocol):
    """The interface of `model.engine.engine.Engine` for the daemon.

    The constants and `check` may be used anywhere; all else belongs to the scheduler's thread.
    """

    @property
    def name(self) -> str:
        """The model's name for clients."""

    @property
    def drafter(self) -> str | None:
        """The drafter's name; None where decoding is plain greedy."""

    @property
    def slots(self) -> int:
        """How many requests may run at once."""

    def check(self, request: Request) -> None:
        """Raises ValueError, in words for the client, for a request that cannot be served."""

    def admit(self, request: Request) -> None:
        """Take a slot. Raises ValueError as `check` does."""

    def cancel(self, request: Request) -> None:
        """Free the request's slot, if it has one; no result follows."""

    def step(self) -> list[Result]:
        """One round for every occupied slot; returns what finished."""

    def warm_up(self) -> None:
        """Run every phase once, so that the first client does not wait for it."""


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """The scheduler's state at one moment, and its counters.

    waiting, running: requests. lag: age of the oldest unfinished final, in seconds. turn: the longest
    that a session has waited for its next final's turn, in seconds. idle: seconds since the engine last
    made progress; 0 with nothing to do, unless the thread has ended.
    superseded, finals, partials, failed: requests since the start, by what became of them; an early
    final that ran to its end is a partial.
    """

    waiting: int
    running: int
    lag: float
    turn: float
    idle: float
    superseded: int
    finals: int
    partials: int
    failed: int

    @property
    def wait(self) -> float:
        """The expected delay of a new session's finals, in seconds."""
        return max(self.turn, self.idle)


class Scheduler:
    """The thread that owns the engine. All methods may be called from any thread.

    load: makes the engine; called in the thread. loop: receives the results.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        loop: AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._loop = loop
        self._clock = clock
        # A daemon thread: a model that is still being read must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._warm: Future[Engine] = Future()
        # The lock of all attributes below; notified whenever the thread may have something to do.
        self._changed = threading.Condition()
        self._request_queue = RequestQueue()
        self._running: dict[Request, Work] = {}
        # Results that the event loop has not taken yet, with the milliseconds that they took.
        self._finished: dict[Request, tuple[Work, Result, float]] = {}
        self._cancelled: list[Request] = []  # running work whose slot is to be freed
        self._stopping = False
        self._partial_throttle = PartialThrottle()
        self._file_throttle = FileThrottle()
        self._joined: dict[Request, float] = {}  # when each file's request that runs joined
        self._last_progress = self._clock()
        self._finals = self._partials = self._failed = 0

    def start(self) -> Future[Engine]:
        """Start the thread. The future holds the engine once it is warm, or why it cannot be."""
        self._thread.start()
        return self._warm

    def submit(self, work: Work) -> None:
        """Queue `work` by the policy of `RequestQueue`."""
        with self._changed:
            if not self._at_work and not self._broken:
                self._last_progress = self._clock()  # an idle engine is not stuck
            if work.final and self._promote(work):
                return
            self._request_queue.put(work)
            self._changed.notify()

    def _promote(self, final: Work) -> bool:
        """Make the early final that is running, or not yet delivered, `final`. False without one."""
        for request, work in self._running.items():
            if work.serves(final):
                self._running[request] = replace(final, request=request)
                self._request_queue.overtake(final)
                return True
        for request, (work, result, _) in self._finished.items():
            if work.serves(final) and not isinstance(result, Failure):
                self._finished[request] = replace(final, request=request), result, 0.0
                self._request_queue.overtake(final)
                return True
        return False

    @property
    def _at_work(self) -> bool:
        """Whether there is anything that should get done now; files may have to wait for their share."""
        return bool(self._running) or self._request_queue.has_live

    @property
    def _broken(self) -> bool:
        """Whether the thread has ended without `stop`."""
        return self._warm.done() and not self._thread.is_alive()

    def cancel(self, session: str) -> None:
        """Forget the session's queued work and free the slots of its running work."""
        with self._changed:
            self._request_queue.drop(session)
            gone = [request for request, work in self._running.items() if work.session == session]
            for request in gone:
                del self._running[request]
                self._joined.pop(request, None)
            self._cancelled += gone
            self._changed.notify()

    def stats(self) -> SchedulerStats:
        """The present state."""
        with self._changed:
            now = self._clock()
            oldest = [w.submitted for w in self._running.values() if w.final and not w.file]
            if self._request_queue.oldest_final is not None:
                oldest.append(self._request_queue.oldest_final)
            turn = self._request_queue.oldest_turn
            waiting, running = len(self._request_queue), len(self._running)
            return SchedulerStats(
                waiting=waiting,
                running=running,
                lag=now - min(oldest, default=now),
                turn=0.0 if turn is None else now - turn,
                idle=now - self._last_progress if self._at_work or self._broken else 0.0,
                superseded=self._request_queue.superseded,
                finals=self._finals,
                partials=self._partials,
                failed=self._failed,
            )

    def stop(self, timeout: float) -> bool:
        """Abandon all work and end the thread after its current round.

        Returns whether it ended within `timeout` seconds; an engine that is still loading or hangs
        does not.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._warm.set_running_or_notify_cancel()
        try:
            engine = self._load()
            engine.warm_up()
        except Exception as error:  # noqa: BLE001 - the waiter for the engine handles it
            self._warm.set_exception(error)
            return
        self._warm.set_result(engine)
        while (changes := self._await_changes(engine.slots)) is not None:
            try:
                self._round(engine, *changes)
            except Exception as error:
                logger.exception("a round of the engine failed")
                try:
                    self._give_up(engine, f"the recogniser failed: {error}")
                except Exception:
                    logger.exception("the engine cannot be emptied; only a restart helps")
                    return

    def _await_changes(self, slots: int) -> tuple[list[Request], list[Work]] | None:
        """Wait for requests to cancel and work to admit. None when the thread shall end.

        Both lists are empty while the running work goes on.
        """
        with self._changed:
            while True:
                if self._stopping:
                    return None
                cancelled, self._cancelled = self._cancelled, []
                joining, pause = self._join(slots)
                if cancelled or joining or self._running:
                    return cancelled, joining
                self._changed.wait(pause)

    def _join(self, slots: int) -> tuple[list[Work], float | None]:
        """Let in what is to run now. Also for how long, in seconds, nothing else will come of itself."""
        running, now = self._running.values(), self._clock()
        if self._request_queue.has_live or any(not work.file for work in running):
            self._file_throttle.saw_live(now)
        joining = self._request_queue.take(
            running,
            slots,
            now=now,
            partials=self._partial_throttle.allows(now, running),
            files=self._file_throttle.most(now, slots),
        )
        if joining and not running:
            self._last_progress = now  # what waited for its share did not wait for the engine
        self._running.update((work.request, work) for work in joining)
        self._joined.update((work.request, now) for work in joining if work.file)
        return joining, self._file_throttle.pause(now)

    def _round(self, engine: Engine, cancelled: list[Request], joining: list[Work]) -> None:
        began = self._clock()
        for request in cancelled:
            engine.cancel(request)
        for work in joining:
            try:
                engine.admit(work.request)
            except ValueError as error:
                self._finish([Failure(work.request, str(error))])
        if self._running:  # a cancellation meanwhile wastes one round at most
            self._finish(engine.step())
        if any(not work.final for work in joining):
            self._partial_throttle.joined(began, self._clock())

    def _give_up(self, engine: Engine, message: str) -> None:
        """Empty the engine after a failed round: work in its second try has failed.

        Raises the engine's exception: then the engine cannot be used any more.
        """
        with self._changed:
            lost = list(self._running.values())
            failed = [work for work in lost if work.alone]
            if not failed:
                self._running.clear()
                self._joined.clear()
                self._request_queue.retry(lost)
        for work in lost:
            engine.cancel(work.request)
        self._finish([Failure(work.request, message) for work in failed])

    def _finish(self, results: list[Result]) -> None:
        """Deliver `results`; those of work that was cancelled meanwhile go nowhere."""
        with self._changed:
            now = self._last_progress = self._clock()
            for result in results:
                work = self._running.pop(result.request, None)
                if work is None:
                    continue
                if work.file:
                    self._file_throttle.ran(self._joined.pop(work.request, now), now)
                if isinstance(result, Failure):
                    self._failed += 1
                elif work.final:
                    self._finals += 1
                else:
                    self._partials += 1
                milliseconds = (now - work.submitted) * 1000
                self._finished[work.request] = work, result, milliseconds
                self._loop.call_soon_threadsafe(self._deliver, work.request)

    def _deliver(self, request: Request) -> None:
        with self._changed:
            work, result, milliseconds = self._finished.pop(request)
        work.done(result, milliseconds)
