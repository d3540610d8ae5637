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
* Files are a class of their own (`Work.file`): their utterances take turns by file, and one joins only while
  no other final waits and a slot beside its own stays free. While live sessions are at work one runs at a time,
  for an eighth of the time (`FileThrottle`): a live final then waits for a file's utterance rarely, and never
  for two. Files do not count in anybody's lag.
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
    alone: it shares the engine with nothing. file: nobody speaks, so that live sessions go first.
    """

    session: str
    utterance: int
    final: bool
    request: Request
    done: Callable[[Result, float], None]
    early: bool = False
    submitted: float = field(default_factory=time.monotonic)  # seconds
    alone: bool = False
    file: bool = False

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


class FileThrottle:
    """How much of the engine files may have beside live sessions. Pure: times are arguments.

    A file's utterance holds up what joins after it for as long as it runs. Once it has run, none follows for
    SHARE - 1 times as long, as long as live sessions were at work within the last MEMORY seconds.
    """

    SHARE = 8
    MEMORY = 10.0

    def __init__(self) -> None:
        self._until = float("-inf")
        self._live = float("-inf")  # when live work was last seen

    def saw_live(self, now: float) -> None:
        """Live work waits, runs or has run."""
        self._live = now

    def ran(self, began: float, ended: float) -> None:
        """A file's utterance was in the engine between the two, in seconds."""
        self._until = ended + (self.SHARE - 1) * (ended - began)

    def most(self, now: float, slots: int) -> int:
        """How many may run at once, at this moment."""
        if now >= self._live + self.MEMORY:
            return max(slots - 1, 1)
        return 1 if now >= self._until else 0

    def pause(self, now: float) -> float | None:
        """Seconds after which `most` will be another; None where it stays."""
        if now >= self._live + self.MEMORY or now >= self._until:
            return None
        return min(self._until, self._live + self.MEMORY) - now


class Turns:
    """Finals in the order of their sessions' turns: one of each, then the next of each."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Work]] = {}  # in order of the turns
        self._since: dict[str, float] = {}  # since when each of those sessions waits for its turn

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def heads(self) -> list[Work]:
        """The oldest of each session."""
        return [queue[0] for queue in self._queues.values()]

    @property
    def oldest(self) -> float | None:
        """Since when the session that waits longest for its turn does so."""
        return min(self._since.values(), default=None)

    def put(self, work: Work) -> None:
        """Behind the others of its session."""
        self._queues.setdefault(work.session, deque()).append(work)
        self._since.setdefault(work.session, work.submitted)

    def drop(self, session: str) -> None:
        """Forget everything of `session`."""
        self._queues.pop(session, None)
        self._since.pop(session, None)

    def take(self, now: float) -> Work:
        """Remove and return the next; its session goes to the end of the line."""
        session = next(iter(self._queues))
        queue = self._queues.pop(session)
        work = queue.popleft()
        del self._since[session]
        if queue:
            self._queues[session] = queue
            self._since[session] = now
        return work


class RequestQueue:
    """The waiting requests, and the policy of which comes next."""

    def __init__(self) -> None:
        self.superseded = 0
        self._alone: deque[Work] = deque()  # finals of a round that failed
        self._finals = Turns()
        self._files = Turns()
        self._partials: dict[str, Work] = {}  # in order of the sessions' waiting

    def __len__(self) -> int:
        return len(self._alone) + len(self._finals) + len(self._files) + len(self._partials)

    @property
    def has_live(self) -> bool:
        """Whether anything waits that is not of a file."""
        return bool(len(self._finals) or self._partials or any(not w.file for w in self._alone))

    @property
    def oldest_final(self) -> float | None:
        """The time at which the longest-waiting live final was submitted."""
        heads = [*(work for work in self._alone if not work.file), *self._finals.heads]
        return min((work.submitted for work in heads), default=None)

    @property
    def oldest_turn(self) -> float | None:
        """The time since which the longest-waiting session awaits its turn.

        A new session has to expect as much, however many finals one session has queued.
        """
        return self._finals.oldest

    def put(self, work: Work) -> None:
        """Queue `work`; a partial replaces the session's, a final drops the one it overtakes."""
        waiting = self._partials.get(work.session)
        if work.file:
            self._files.put(work)
        elif work.final:
            self._finals.put(work)
            self.overtake(work)
        else:
            self.superseded += waiting is not None
            self._partials[work.session] = work

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
        self._finals.drop(session)
        self._files.drop(session)
        self._partials.pop(session, None)

    def take(
        self,
        running: Collection[Work],
        slots: int,
        *,
        now: float,
        partials: bool = True,
        files: int = 1,
    ) -> list[Work]:
        """Remove and return what joins `running` now, most urgent first.

        partials: whether one may join. files: how many of files may run at once.
        """
        if self._alone and not running:
            return [self._alone.popleft()]
        if self._alone or any(work.alone for work in running):
            return []
        taken: list[Work] = []
        free = slots - len(running)
        while len(self._finals) and len(taken) < free:
            taken.append(self._finals.take(now))
        free -= len(taken) + (slots > 1)
        if len(self._finals) or free <= 0:
            return taken
        busy = {work.session for work in running if not work.final}
        ready = [session for session in self._partials if session not in busy] if partials else []
        ready.sort(key=lambda session: not self._partials[session].early)
        if ready:
            return [*taken, self._partials.pop(ready[0])]
        free = min(free, files - sum(work.file for work in running))
        return taken + [self._files.take(now) for _ in range(min(free, len(self._files)))]
