"""All sessions: who has a seat, whose seat waits for a lost client, and when a seat is given up.

Bounded: a seat waits `resume_seconds`, and gives way to a new session when there are more seats than
`max_sessions`, first one of the newcomer's own, then the longest lost.
"""

import asyncio
import hmac
import logging
import secrets
from typing import Protocol

from daemon.sessions.close_reasons import NORMAL, CloseReason
from daemon.sessions.live_session import Client, LiveSession, Service
from streaming.protocol import ProtocolError, Resume, ServerMessage, Start

logger = logging.getLogger(__name__)

UNKNOWN = (
    "there is no such session: it ended, it was not resumed in time, or the daemon was restarted; "
    "start another one"
)


class Occupant(Client, Protocol):
    """A seat's client that can be asked to leave."""

    @property
    def gone(self) -> bool:
        """Whether it can be told nothing any more."""

    async def give_way(self) -> None:
        """Leave; returns when the seat has been left."""


class SessionRegistry:
    """The seats by the names of their sessions."""

    def __init__(self) -> None:
        self._sessions: dict[str, LiveSession] = {}
        self._occupants: dict[str, Occupant] = {}
        self._waiting: dict[str, asyncio.TimerHandle] = {}  # for their clients, longest first
        self._finishing: set[str] = set()  # finals that nobody but a transcript awaits
        self._finished = asyncio.Event()
        self._finished.set()

    def __len__(self) -> int:
        return len(self._sessions)

    def holds(self, name: str, label: str) -> bool:
        """Whether the session `name` is there, and of a client whose token is called `label`."""
        return name in self._sessions and self._sessions[name].label == label

    @property
    def waiting(self) -> int:
        """How many wait for their clients."""
        return len(self._waiting)

    @property
    def finishing(self) -> int:
        """How many have no client, and finals that their transcripts await."""
        return len(self._finishing)

    def open(self, start: Start, label: str, service: Service, client: Occupant) -> LiveSession:
        """Begin a session. Raises ProtocolError as `Seat` does."""
        live_session = LiveSession(secrets.token_hex(4), label, start, service)
        most = service.config.max_sessions
        while len(self._sessions) - len(self._finishing) >= most and self._waiting:
            # Whoever loses connections all the time pushes out nobody else's session.
            own = (name for name in self._waiting if self._sessions[name].label == label)
            name = next(own, next(iter(self._waiting)))
            self._give_up(self._sessions[name], "gave way to a new session")
        self._sessions[live_session.name] = live_session
        self._occupants[live_session.name] = client
        live_session.attach(client, finals=0)
        return live_session

    async def resume(self, wish: Resume, label: str, client: Occupant) -> LiveSession:
        """The session that `wish` names, from now on told to `client`.

        Where its last connection has not ended yet, it is ended. Raises ProtocolError "bad_resume".
        """
        live_session = self._claimed(wish, label)
        while (occupant := self._occupants.get(live_session.name)) is not None:
            await occupant.give_way()
            live_session = self._claimed(wish, label)
        if client.gone:  # meanwhile: the session waits for its next attempt
            raise ProtocolError("bad_resume", "this connection is over; try again on another one")
        if wish.heard > live_session.acknowledged_bytes:
            raise ProtocolError(
                "bad_resume",
                f"only {live_session.acknowledged_bytes} bytes were heard, and what follows cannot be sent again",
            )
        try:
            live_session.attach(client, wish.finals)
        except LookupError:
            raise ProtocolError(
                "bad_resume",
                f"what came after final {wish.finals} of {live_session.finals} is not known any more",
            ) from None
        self._occupants[live_session.name] = client
        self._wait_no_more(live_session)
        logger.info(
            "session %s: its client is back",
            live_session.name,
            extra={"session": live_session.name},
        )
        return live_session

    def leave(self, live_session: LiveSession, *, lost: bool, how: str) -> None:
        """The seat's connection has ended; `how` is for the log. lost: it was not meant to."""
        live_session.client = None
        del self._occupants[live_session.name]
        if lost and live_session.key is not None:
            patience = live_session.config.resume_seconds
            loop = asyncio.get_running_loop()
            self._waiting[live_session.name] = loop.call_later(
                patience, self._give_up, live_session, "its client did not come back"
            )
            logger.info(
                "session %s: %s; kept for %g s",
                live_session.name,
                how,
                patience,
                extra={"session": live_session.name},
            )
        else:
            self._give_up(live_session, how)

    async def clear(self) -> None:
        """Give up what waits for clients, and finish what a transcript awaits."""
        for name in list(self._waiting):
            self._give_up(self._sessions[name], "its client is not back, and the daemon stops")
        await self._finished.wait()

    def abandon(self) -> None:
        """Give up what is left, finished or not; no seat has a connection any more."""
        for live_session in list(self._sessions.values()):
            self._remove(live_session, "dropped")

    def _claimed(self, wish: Resume, label: str) -> LiveSession:
        live_session = self._sessions.get(wish.session)
        if (
            live_session is None
            or live_session.key is None
            or live_session.name in self._finishing
            or live_session.label != label
            or not hmac.compare_digest(live_session.key.encode(), wish.key.encode())
        ):
            raise ProtocolError("bad_resume", UNKNOWN)
        return live_session

    def _give_up(self, live_session: LiveSession, how: str) -> None:
        self._wait_no_more(live_session)
        if live_session.ended or live_session.transcript is None:
            self._remove(live_session, how)
            return
        # Nobody listens, but what was spoken belongs into the transcript.
        self._finishing.add(live_session.name)
        self._finished.clear()
        live_session.client = _Absent(self, live_session, how)
        live_session.wind_down(NORMAL)

    def _wait_no_more(self, live_session: LiveSession) -> None:
        timer = self._waiting.pop(live_session.name, None)
        if timer is not None:
            timer.cancel()

    def _remove(self, live_session: LiveSession, how: str) -> None:
        """The end of a session, and its one line in the log."""
        self._wait_no_more(live_session)
        del self._sessions[live_session.name]
        self._finishing.discard(live_session.name)
        if not self._finishing:
            self._finished.set()
        pending = f", {live_session.outstanding} given up" if live_session.outstanding else ""
        token = f" (token {live_session.label})" if live_session.label else ""
        logger.info(
            "session %s%s: %s; %.1f s of audio in %.1f s, %d finals%s",
            live_session.name,
            token,
            how,
            live_session.seconds,
            live_session.lasted,
            live_session.finals,
            pending,
            extra={"session": live_session.name},
        )
        live_session.discard()


class _Absent:
    """In the place of a client that is gone: lets the session come to its end."""

    def __init__(self, sessions: SessionRegistry, live_session: LiveSession, how: str) -> None:
        self._sessions = sessions
        self._live_session = live_session
        self._how = how

    def tell(self, message: ServerMessage) -> None:
        """Nobody hears it."""

    def changed(self) -> None:
        """Nobody minds."""

    def over(self, _close_reason: CloseReason) -> None:
        """All that was spoken is written."""
        self._sessions._remove(self._live_session, self._how)  # noqa: SLF001 - its other half
