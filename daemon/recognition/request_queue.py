"""The recogniser's queue: which request is decoded next, and which is dropped.

It knows no thread and no engine. Making work reads the clock; all other times are arguments, in seconds.

The policy:

* Finals go before partials: while a final waits, no partial is admitted.
* Finals of one session are decoded in the order submitted; sessions take turns, so that a final of
  a live speaker waits behind one utterance of another client's file, not behind the whole file.
* Only the newest partial of a session waits. It keeps its predecessor's place in the queue
  (the session that waited longest comes first) and is dropped when the final of its utterance, or
  of a later one, is submitted. A running partial is left to finish; until then the session's
  next one waits.
* An early final, asked for when silence begins, is queued as a partial is, before the others. When
  the utterance's final is submitted and the same request is running early, that one is the final:
  nothing is decoded twice.
* A partial never takes the last free slot where there are several: it is kept for a final.
* At most one partial joins between two rounds: a new final waits for one encoding, not for many.
  While a final runs, partials may take a quarter of the time (`PartialThrottle`).
* Work joins between two rounds of the engine. With nothing to do the thread sleeps.
* The finals of a failed round are tried again, before anything else and each alone in the engine; one
  that fails at that has failed. The round's partials are dropped.

Its users bound the queue: one partial for each session, and the finals of as much audio as a session
may have outstanding.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from model.engine.requests import Failure, Request, RequestOutput

Result = RequestOutput | Failure


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One request of one session.

    done(result, milliseconds since submission): called at most once, on the event loop; never for
    work that was superseded or cancelled. early: the utterance's final, should its silence last.
    alone: it shares the engine with nothing.
    """

    session: str
    utterance: int
    final: bool
    request: Request
    done: Callable[[Result, float], None]
    early: bool = False
    submitted: float = field(default_factory=time.monotonic)  # seconds
    alone: bool = False

    def serves(self, final: "Work") -> bool:
        """Whether this early final's result will be what `final` asks for."""
        mine, other = self.request, final.request
        return (
            self.early
            and (self.session, self.utterance) == (final.session, final.utterance)
            and len(mine.audio) == len(other.audio)
            and (mine.prefix, mine.prompt) == (other.prefix, other.prompt)
            and (mine.language, mine.language_hint) == (other.language, other.language_hint)
        )


class PartialThrottle:
    """Limits the engine's time for partials while finals run. Pure: times are arguments.

    A partial that joins delays everything that runs by its encoding, whose length is measured. The next
    one joins when that encoding was 1/SHARE of the time since it began.
    """

    SHARE = 4

    def __init__(self) -> None:
        self._until = float("-inf")

    def joined(self, began: float, ended: float) -> None:
        """A partial joined in the round between the two, in seconds."""
        self._until = ended + (self.SHARE - 1) * (ended - began)

    def allows(self, now: float, running: Collection[Work]) -> bool:
        """Whether a partial may join what is running."""
        return now >= self._until or not any(work.final for work in running)


class RequestQueue:
    """The waiting requests, and the policy of which comes next."""

    def __init__(self) -> None:
        self.superseded = 0
        self._alone: deque[Work] = deque()  # finals of a round that failed
        self._finals: dict[str, deque[Work]] = {}  # in order of the sessions' turns
        self._turns: dict[str, float] = {}  # since when each of those sessions waits for its turn
        self._partials: dict[str, Work] = {}  # in order of the sessions' waiting

    def __len__(self) -> int:
        return len(self._alone) + sum(map(len, self._finals.values())) + len(self._partials)

    @property
    def oldest_final(self) -> float | None:
        """The time at which the longest-waiting final was submitted."""
        heads = [*self._alone, *(queue[0] for queue in self._finals.values())]
        return min((work.submitted for work in heads), default=None)

    @property
    def oldest_turn(self) -> float | None:
        """The time since which the longest-waiting session awaits its turn.

        A new session has to expect as much, however many finals one session has queued.
        """
        return min(self._turns.values(), default=None)

    def put(self, work: Work) -> None:
        """Queue `work`; a partial replaces the session's, a final drops the one it overtakes."""
        waiting = self._partials.get(work.session)
        if not work.final:
            self.superseded += waiting is not None
            self._partials[work.session] = work
            return
        self._finals.setdefault(work.session, deque()).append(work)
        self._turns.setdefault(work.session, work.submitted)
        self.overtake(work)

    def overtake(self, final: Work) -> None:
        """Drop the partial that waits for the utterance of `final`, or for one before it."""
        waiting = self._partials.get(final.session)
        if waiting is not None and waiting.utterance <= final.utterance:
            del self._partials[final.session]
            self.superseded += 1

    def retry(self, works: Iterable[Work]) -> None:
        """Queue the finals of a failed round again. Its partials will have successors."""
        for work in works:
            if work.final:
                self._alone.append(replace(work, alone=True))
            else:
                self.superseded += 1

    def drop(self, session: str) -> None:
        """Forget everything of `session`."""
        self._alone = deque(work for work in self._alone if work.session != session)
        self._finals.pop(session, None)
        self._turns.pop(session, None)
        self._partials.pop(session, None)

    def take(
        self, running: Collection[Work], slots: int, *, now: float, partials: bool = True
    ) -> list[Work]:
        """Remove and return what joins `running` now, most urgent first; no partial unless `partials`."""
        if self._alone and not running:
            return [self._alone.popleft()]
        if self._alone or any(work.alone for work in running):
            return []
        taken: list[Work] = []
        free = slots - len(running)
        while self._finals and len(taken) < free:
            taken.append(self._next_final(now))
        free -= len(taken) + (slots > 1)
        if self._finals or free <= 0 or not partials:
            return taken
        busy = {work.session for work in running if not work.final}
        ready = [session for session in self._partials if session not in busy]
        ready.sort(key=lambda session: not self._partials[session].early)
        return taken + [self._partials.pop(session) for session in ready[:1]]

    def _next_final(self, now: float) -> Work:
        session = next(iter(self._finals))
        queue = self._finals.pop(session)
        work = queue.popleft()
        del self._turns[session]
        if queue:
            self._finals[session] = queue  # back to the end of the line
            self._turns[session] = now
        return work
