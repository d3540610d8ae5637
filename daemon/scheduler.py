"""The recogniser's queue and its one thread: what is decoded next, and what is left out.

No socket, no session and no message is known here: work comes in, results go out on the event
loop. The engine is loaded, warmed and used in this file's thread and nowhere else.

The policy:

* Finals go before partials: while a final waits, no partial is admitted.
* Finals of one session are decoded in the order submitted; sessions take turns, so that a final of
  a live speaker waits behind one utterance of somebody's file, not behind the whole file.
* Of a session's partials the newest alone waits. It keeps its predecessor's place in the queue
  (the session that waited longest comes first) and is dropped when the final of its utterance, or
  of a later one, is submitted. A running partial is left to finish; until then the session's
  next one waits.
* A partial never takes the last free slot where there are several: a final needs no luck.
* Work joins between two rounds of the engine. With nothing to do the thread sleeps.
* A round that fails is no verdict on what was in it. Its finals are tried again, before anything else
  and each alone in the engine; the one that fails at that has failed. Its partials are dropped.

The queue is bounded by its users: one partial for each session, and the finals of as much audio as
a session may have outstanding.
"""

import logging
import threading
import time
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from model.requests import Failure, Hypothesis, Request

logger = logging.getLogger(__name__)

Result = Hypothesis | Failure


class Engine(Protocol):
    """What the daemon needs of `model.engine.Engine`.

    The constants and `check` may be used anywhere; all else belongs to the scheduler's thread.
    """

    @property
    def name(self) -> str:
        """The model's name, as clients are told."""

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
        """Run every phase once, so that the first client does not pay for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One request of one session.

    done(result, milliseconds since submission): called at most once, on the event loop; never for
    work that was superseded or cancelled. alone: it shares the engine with nothing.
    """

    session: str
    utterance: int
    final: bool
    request: Request
    done: Callable[[Result, float], None]
    submitted: float = field(default_factory=time.monotonic)  # seconds
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """The scheduler at one moment.

    waiting, running: requests. lag: age of the oldest unfinished final, in seconds. idle: seconds
    since the engine last got anything done, 0 with nothing to do. superseded, finals, partials,
    failed: requests since the start, by what became of them.
    """

    waiting: int
    running: int
    lag: float
    idle: float
    superseded: int
    finals: int
    partials: int
    failed: int


class Backlog:
    """What waits, and the policy of what comes next. Pure: no thread, no engine."""

    def __init__(self) -> None:
        self.superseded = 0
        self._alone: deque[Work] = deque()  # finals of a round that failed
        self._finals: dict[str, deque[Work]] = {}  # in order of the sessions' turns
        self._partials: dict[str, Work] = {}  # in order of the sessions' waiting

    def __len__(self) -> int:
        return len(self._alone) + sum(map(len, self._finals.values())) + len(self._partials)

    @property
    def oldest_final(self) -> float | None:
        """When the final that waits longest was submitted."""
        heads = [*self._alone, *(queue[0] for queue in self._finals.values())]
        return min((work.submitted for work in heads), default=None)

    def put(self, work: Work) -> None:
        """Queue `work`; a partial replaces the session's, a final drops the one it overtakes."""
        waiting = self._partials.get(work.session)
        if not work.final:
            self.superseded += waiting is not None
            self._partials[work.session] = work
            return
        self._finals.setdefault(work.session, deque()).append(work)
        if waiting is not None and waiting.utterance <= work.utterance:
            del self._partials[work.session]
            self.superseded += 1

    def retry(self, works: Iterable[Work]) -> None:
        """Queue again what was in a round that failed: the finals. Partials will have successors."""
        for work in works:
            if work.final:
                self._alone.append(replace(work, alone=True))
            else:
                self.superseded += 1

    def drop(self, session: str) -> None:
        """Forget everything of `session`."""
        self._alone = deque(work for work in self._alone if work.session != session)
        self._finals.pop(session, None)
        self._partials.pop(session, None)

    def take(self, running: Collection[Work], slots: int) -> list[Work]:
        """Remove and return what joins `running` now, most urgent first."""
        if self._alone and not running:
            return [self._alone.popleft()]
        if self._alone or any(work.alone for work in running):
            return []
        taken: list[Work] = []
        free = slots - len(running)
        while self._finals and len(taken) < free:
            taken.append(self._next_final())
        free -= len(taken) + (slots > 1)
        if self._finals or free <= 0:
            return taken
        busy = {work.session for work in running if not work.final}
        ready = [session for session in self._partials if session not in busy]
        return taken + [self._partials.pop(session) for session in ready[:free]]

    def _next_final(self) -> Work:
        session = next(iter(self._finals))
        queue = self._finals.pop(session)
        work = queue.popleft()
        if queue:
            self._finals[session] = queue  # back to the end of the line
        return work


class Scheduler:
    """The thread that owns the engine. All methods may be called from any thread.

    load: makes the engine; called in the thread. loop: where results are delivered.
    """

    def __init__(self, load: Callable[[], Engine], loop: AbstractEventLoop) -> None:
        self._load = load
        self._loop = loop
        # A daemon thread: a model that is still being read must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._warm: Future[Engine] = Future()
        # Guards everything below; notified whenever the thread may have something to do.
        self._changed = threading.Condition()
        self._backlog = Backlog()
        self._running: dict[Request, Work] = {}
        self._cancelled: list[Request] = []  # running work whose slot is to be freed
        self._stopping = False
        self._last_progress = time.monotonic()
        self._finals = self._partials = self._failed = 0

    def start(self) -> Future[Engine]:
        """Start the thread. The future holds the engine once it is warm, or why it cannot be."""
        self._thread.start()
        return self._warm

    def submit(self, work: Work) -> None:
        """Queue `work` by the policy above."""
        with self._changed:
            if not self._backlog and not self._running:
                self._last_progress = time.monotonic()  # idleness was no lack of progress
            self._backlog.put(work)
            self._changed.notify()

    def cancel(self, session: str) -> None:
        """Forget the session's queued work and free the slots of its running work."""
        with self._changed:
            self._backlog.drop(session)
            gone = [request for request, work in self._running.items() if work.session == session]
            for request in gone:
                del self._running[request]
            self._cancelled += gone
            self._changed.notify()

    def facts(self) -> Facts:
        """How things stand."""
        with self._changed:
            now = time.monotonic()
            oldest = [work.submitted for work in self._running.values() if work.final]
            if self._backlog.oldest_final is not None:
                oldest.append(self._backlog.oldest_final)
            waiting, running = len(self._backlog), len(self._running)
            return Facts(
                waiting=waiting,
                running=running,
                lag=now - min(oldest, default=now),
                idle=now - self._last_progress if waiting or running else 0.0,
                superseded=self._backlog.superseded,
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
        except Exception as error:  # noqa: BLE001 - whoever waits for the engine handles it
            self._warm.set_exception(error)
            return
        self._warm.set_result(engine)
        while (changes := self._await_changes(engine.slots)) is not None:
            try:
                self._round(engine, *changes)
            except Exception as error:
                logger.exception("a round of the engine failed")
                self._give_up(engine, f"the recogniser failed: {error}")

    def _await_changes(self, slots: int) -> tuple[list[Request], list[Request]] | None:
        """Wait for something to do: requests to cancel and to admit. None when it is time to end.

        Both lists are empty while what already runs simply goes on.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or self._cancelled or self._running or self._backlog
            )
            if self._stopping:
                return None
            cancelled, self._cancelled = self._cancelled, []
            joining = self._backlog.take(self._running.values(), slots)
            self._running.update((work.request, work) for work in joining)
            return cancelled, [work.request for work in joining]

    def _round(self, engine: Engine, cancelled: list[Request], joining: list[Request]) -> None:
        for request in cancelled:
            engine.cancel(request)
        for request in joining:
            try:
                engine.admit(request)
            except ValueError as error:
                self._finish([Failure(request, str(error))])
        if self._running:  # a cancellation meanwhile costs one round for nothing, at most
            self._finish(engine.step())

    def _give_up(self, engine: Engine, message: str) -> None:
        """Empty the engine after a round that failed: what had a second try has failed.

        Should that fail too, the thread ends.
        """
        with self._changed:
            lost = list(self._running.values())
            failed = [work for work in lost if work.alone]
            if not failed:
                self._running.clear()
                self._backlog.retry(lost)
        for work in lost:
            engine.cancel(work.request)
        self._finish([Failure(work.request, message) for work in failed])

    def _finish(self, results: list[Result]) -> None:
        """Deliver `results`; those of work that was cancelled meanwhile go nowhere."""
        with self._changed:
            now = self._last_progress = time.monotonic()
            for result in results:
                work = self._running.pop(result.request, None)
                if work is None:
                    continue
                if isinstance(result, Failure):
                    self._failed += 1
                elif work.final:
                    self._finals += 1
                else:
                    self._partials += 1
                milliseconds = (now - work.submitted) * 1000
                self._loop.call_soon_threadsafe(work.done, result, milliseconds)
