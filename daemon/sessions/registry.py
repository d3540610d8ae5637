"""All sessions: resumption after a lost connection, and when a session is given up.

Bounded: a session waits `resume_seconds`, and gives way to a new one when there are more than
`max_sessions`, first one of the newcomer's own, then the longest lost. Which state a session is in, and
what may follow, is its own to say (streaming/lifecycle.py).
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Iterator

from daemon.sessions.live_session import Client, LiveSession, Service
from streaming.lifecycle import State
from streaming.protocol import SAMPLE_RATE, ProtocolError, Resume, Start

logger = logging.getLogger(__name__)

UNKNOWN = (
    "there is no such session: it ended, it was not resumed in time, or the daemon was restarted; "
    "start another one"
)


class SessionRegistry:
    """The sessions that are not closed, by their names."""

    def __init__(self) -> None:
        self._sessions: dict[str, LiveSession] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}  # of lost sessions, longest lost first
        self._one_closed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(self._sessions.values())

    def __getitem__(self, name: str) -> LiveSession:
        return self._sessions[name]

    def holds(self, name: str, label: str) -> bool:
        """Whether the session `name` is there, and of a client whose token is called `label`."""
        return name in self._sessions and self._sessions[name].label == label

    @property
    def waiting(self) -> int:
        """How many wait for their clients."""
        return sum(session.state.is_awaited for session in self)

    @property
    def finishing(self) -> int:
        """How many have no client, and finals that their transcripts await."""
        return sum(session.state is State.UNATTENDED for session in self)

    def open(self, start: Start, label: str, service: Service, client: Client) -> LiveSession:
        """Begin a session. Raises ProtocolError as `LiveSession` does."""
        session = LiveSession(secrets.token_hex(4), label, start, service, self._remove)
        while len(self) - self.finishing >= service.config.max_sessions and self.waiting:
            # A client that loses connections all the time pushes out nobody else's session.
            lost = [self[name] for name in self._expiries]
            own = (one for one in lost if one.label == label)
            self._expire(next(own, lost[0]), "gave way to a new session")
        self._sessions[session.name] = session
        session.attach(client, finals=0)
        return session

    async def resume(self, wish: Resume, label: str, client: Client) -> LiveSession:
        """The session that `wish` names, from now on told to `client`.

        Where its last connection has not ended yet, it is ended. Raises ProtocolError "bad_resume".
        """
        session = self._claimed(wish, label)
        while session.client is not None:
            await session.client.give_way()
            session = self._claimed(wish, label)
        if client.gone:  # meanwhile: the session waits for its next attempt
            raise ProtocolError("bad_resume", "this connection is over; try again on another one")
        if wish.heard > session.acknowledged_bytes:
            raise ProtocolError(
                "bad_resume",
                f"only {session.acknowledged_bytes} bytes were heard, and what follows cannot be sent again",
            )
        try:
            session.attach(client, wish.finals)
        except LookupError:
            known = session.record.replay_log.finals
            raise ProtocolError(
                "bad_resume",
                f"what came after final {wish.finals} of {known} is not known any more",
            ) from None
        self._expiries.pop(session.name).cancel()
        logger.info("session %s: its client is back", session.name, extra={"session": session.name})
        return session

    def leave(self, session: LiveSession, *, lost: bool, how: str) -> None:
        """The session's connection has ended; `how` is for the log. lost: it was not meant to."""
        if not lost or session.key is None:
            session.expire(how)
            return
        session.detach()
        patience = session.config.resume_seconds
        self._expiries[session.name] = asyncio.get_running_loop().call_later(
            patience, self._expire, session, "its client did not come back"
        )
        logger.info(
            "session %s: %s; kept for %g s",
            session.name,
            how,
            patience,
            extra={"session": session.name},
        )

    async def clear(self) -> None:
        """Give up what waits for clients, and finish what transcripts await."""
        for name in list(self._expiries):
            self._expire(self[name], "its client is not back, and the daemon stops")
        while self.finishing:
            self._one_closed.clear()
            await self._one_closed.wait()

    def abandon(self) -> None:
        """Give up what is left, finished or not; no session has a connection any more."""
        for session in list(self):
            session.drop("dropped")

    def _claimed(self, wish: Resume, label: str) -> LiveSession:
        session = self._sessions.get(wish.session)
        if (
            session is None
            or session.key is None
            or session.state is State.UNATTENDED
            or session.label != label
            or not hmac.compare_digest(session.key.encode(), wish.key.encode())
        ):
            raise ProtocolError("bad_resume", UNKNOWN)
        return session

    def _expire(self, session: LiveSession, how: str) -> None:
        self._expiries.pop(session.name).cancel()
        session.expire(how)

    def _remove(self, session: LiveSession) -> None:
        """Delete the closed session, wake `clear`, and write its one line in the log."""
        del self._sessions[session.name]
        if (timer := self._expiries.pop(session.name, None)) is not None:
            timer.cancel()
        self._one_closed.set()
        token = f" (token {session.label})" if session.label else ""
        given_up = session.lag.outstanding
        logger.info(
            "session %s%s: %s; %.1f s of audio in %.1f s, %d finals%s",
            session.name,
            token,
            session.outcome,
            session.stream.received / SAMPLE_RATE,
            asyncio.get_running_loop().time() - session.opened,
            session.record.replay_log.finals,
            f", {given_up} given up" if given_up else "",
            extra={"session": session.name},
        )
