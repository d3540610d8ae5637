"""The life of a session as one table: which event may come in which state, and what follows.

    STARTING ── start ──► OPEN ── stop, shut_down ──► DRAINING ── finished ──► FINISHED
                           │ ▲                          │ ▲                      │ ▲
                      lost │ │ resumed             lost │ │ resumed         lost │ │ resumed
                           ▼ │                          ▼ │                      ▼ │
                        DETACHED              DETACHED_DRAINING ── finished ──► DETACHED_FINISHED

    expired: FINISHED and DETACHED_FINISHED ──► CLOSED; any other ──► UNATTENDED ── finished ──► CLOSED
    aborted: from any of them to where *finished* would lead in the end, without the pending finals

A lost session keeps its place: OPEN, DRAINING and FINISHED have a twin each, in which the client is
awaited back. No clock and no socket is known here.
"""

from enum import Enum, auto

from streaming.protocol import ProtocolError


class State(Enum):
    """Where a session is in its life."""

    STARTING = auto()  # no start has come
    OPEN = auto()  # audio flows
    DRAINING = auto()  # the audio is over; finals are pending
    FINISHED = auto()  # every message is told; the connection closes
    DETACHED = auto()  # the connection was lost while open; the client is awaited back
    DETACHED_DRAINING = auto()  # ... while draining
    DETACHED_FINISHED = auto()  # ... and every message waits for the client
    UNATTENDED = auto()  # no client will come; finals are pending for the transcript
    CLOSED = auto()  # nothing is pending, nothing is kept

    @property
    def takes_audio(self) -> bool:
        """Whether more audio may come."""
        return self in (State.OPEN, State.DETACHED)

    @property
    def is_awaited(self) -> bool:
        """Whether the session is kept for a client that was lost."""
        return self in (State.DETACHED, State.DETACHED_DRAINING, State.DETACHED_FINISHED)

    @property
    def is_finished(self) -> bool:
        """Whether no message may follow."""
        return self in (State.FINISHED, State.DETACHED_FINISHED, State.CLOSED)


class Event(Enum):
    """What may happen to a session."""

    START = auto()
    AUDIO = auto()  # a binary frame
    CONFIGURE = auto()
    FLUSH = auto()
    STOP = auto()  # the client has no more audio
    SHUT_DOWN = auto()  # the daemon takes no more audio
    LOST = auto()  # the connection broke, and the client may come back
    RESUMED = auto()  # it did
    EXPIRED = auto()  # no client is there, and none is awaited any more
    FINISHED = auto()  # the last final has come
    ABORTED = auto()  # pending finals are given up


STARTED = "this session has started; open another connection for another one"
NOT_STARTED = 'the first message must be {"type": "start"}'
STOPPED = "nothing may follow stop: open another session"

# The state that follows, or why the client may not do so. An absent pair is our own mistake.
STEPS: dict[tuple[State, Event], State | str] = {
    (State.STARTING, Event.START): State.OPEN,
    (State.STARTING, Event.AUDIO): NOT_STARTED,
    (State.STARTING, Event.CONFIGURE): NOT_STARTED,
    (State.STARTING, Event.FLUSH): NOT_STARTED,
    (State.STARTING, Event.STOP): NOT_STARTED,
    (State.OPEN, Event.START): STARTED,
    (State.OPEN, Event.AUDIO): State.OPEN,
    (State.OPEN, Event.CONFIGURE): State.OPEN,
    (State.OPEN, Event.FLUSH): State.OPEN,
    (State.OPEN, Event.STOP): State.DRAINING,
    (State.OPEN, Event.SHUT_DOWN): State.DRAINING,
    (State.OPEN, Event.LOST): State.DETACHED,
    (State.OPEN, Event.EXPIRED): State.UNATTENDED,
    (State.OPEN, Event.ABORTED): State.FINISHED,
    (State.DRAINING, Event.START): STARTED,
    (State.DRAINING, Event.AUDIO): STOPPED,
    (State.DRAINING, Event.CONFIGURE): STOPPED,
    (State.DRAINING, Event.FLUSH): STOPPED,
    (State.DRAINING, Event.STOP): State.DRAINING,
    (State.DRAINING, Event.SHUT_DOWN): State.DRAINING,
    (State.DRAINING, Event.LOST): State.DETACHED_DRAINING,
    (State.DRAINING, Event.EXPIRED): State.UNATTENDED,
    (State.DRAINING, Event.FINISHED): State.FINISHED,
    (State.DRAINING, Event.ABORTED): State.FINISHED,
    # What a client says to a finished session is thrown away by the daemon, but not by `Session`.
    (State.FINISHED, Event.AUDIO): STOPPED,
    (State.FINISHED, Event.CONFIGURE): STOPPED,
    (State.FINISHED, Event.FLUSH): STOPPED,
    (State.FINISHED, Event.STOP): State.FINISHED,
    (State.FINISHED, Event.LOST): State.DETACHED_FINISHED,
    (State.FINISHED, Event.EXPIRED): State.CLOSED,
    (State.DETACHED, Event.RESUMED): State.OPEN,
    (State.DETACHED, Event.EXPIRED): State.UNATTENDED,
    (State.DETACHED_DRAINING, Event.RESUMED): State.DRAINING,
    (State.DETACHED_DRAINING, Event.EXPIRED): State.UNATTENDED,
    (State.DETACHED_DRAINING, Event.FINISHED): State.DETACHED_FINISHED,
    (State.DETACHED, Event.ABORTED): State.DETACHED_FINISHED,
    (State.DETACHED_DRAINING, Event.ABORTED): State.DETACHED_FINISHED,
    (State.DETACHED_FINISHED, Event.RESUMED): State.FINISHED,
    (State.DETACHED_FINISHED, Event.EXPIRED): State.CLOSED,
    (State.UNATTENDED, Event.FINISHED): State.CLOSED,
    (State.UNATTENDED, Event.ABORTED): State.CLOSED,
}


def after(state: State, event: Event) -> State:
    """The state that follows. Raises ProtocolError("bad_order") for what a client may not do now."""
    step = STEPS.get((state, event))
    assert step is not None, f"{event} in {state}"
    if isinstance(step, str):
        raise ProtocolError("bad_order", step)
    return step


class Lifecycle:
    """Something with such a life. The other events come with what it does on them."""

    def __init__(self) -> None:
        self._state = State.STARTING

    @property
    def state(self) -> State:
        """Where it is in its life."""
        return self._state

    def attach(self) -> None:
        """The client that was lost is back."""
        self._step(Event.RESUMED)

    def detach(self) -> None:
        """The connection was lost; the client is awaited back."""
        self._step(Event.LOST)

    def abort(self) -> None:
        """Give up what is pending."""
        self._step(Event.ABORTED)

    def _step(self, event: Event) -> None:
        """Take `event`. Raises ProtocolError as `after` does, and nothing has changed."""
        self._state = after(self._state, event)
