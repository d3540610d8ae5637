"""All sessions: who has a seat, whose seat waits for a lost client, and when a seat is given up.

Bounded: a seat waits `resume_seconds`, and gives way to a new session when there are more seats than
`max_sessions`, first one of the newcomer's own, then the longest lost.
"""

import asyncio
import hmac
import logging
import secrets
from typing import Protocol

from daemon.farewell import NORMAL, Farewell
from daemon.seat import Client, Seat, Service
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


class Seats:
    """The seats by the names of their sessions."""

    def __init__(self) -> None:
        self._seats: dict[str, Seat] = {}
        self._occupants: dict[str, Occupant] = {}
        self._waiting: dict[str, asyncio.TimerHandle] = {}  # for their clients, longest first
        self._finishing: set[str] = set()  # finals that nobody but a transcript awaits
        self._finished = asyncio.Event()
        self._finished.set()

    def __len__(self) -> int:
        return len(self._seats)

    def holds(self, name: str, label: str) -> bool:
        """Whether the session `name` is there, and of a client whose token is called `label`."""
        return name in self._seats and self._seats[name].label == label

    @property
    def waiting(self) -> int:
        """How many wait for their clients."""
        return len(self._waiting)

    @property
    def finishing(self) -> int:
        """How many have no client, and finals that their transcripts await."""
        return len(self._finishing)

    def open(self, start: Start, label: str, service: Service, client: Occupant) -> Seat:
        """Begin a session. Raises ProtocolError as `Seat` does."""
        seat = Seat(secrets.token_hex(4), label, start, service)
        most = service.config.max_sessions
        while len(self._seats) - len(self._finishing) >= most and self._waiting:
            # Whoever loses connections all the time pushes out nobody else's session.
            own = (name for name in self._waiting if self._seats[name].label == label)
            name = next(own, next(iter(self._waiting)))
            self._give_up(self._seats[name], "gave way to a new session")
        self._seats[seat.name] = seat
        self._occupants[seat.name] = client
        seat.attach(client, finals=0)
        return seat

    async def resume(self, wish: Resume, label: str, client: Occupant) -> Seat:
        """The session that `wish` names, from now on told to `client`.

        Where its last connection has not ended yet, it is ended. Raises ProtocolError "bad_resume".
        """
        seat = self._claimed(wish, label)
        while (occupant := self._occupants.get(seat.name)) is not None:
            await occupant.give_way()
            seat = self._claimed(wish, label)
        if client.gone:  # meanwhile: the session waits for its next attempt
            raise ProtocolError("bad_resume", "this connection is over; try again on another one")
        if wish.heard > seat.heard_bytes:
            raise ProtocolError(
                "bad_resume",
                f"only {seat.heard_bytes} bytes were heard, and what follows cannot be sent again",
            )
        try:
            seat.attach(client, wish.finals)
        except LookupError:
            raise ProtocolError(
                "bad_resume",
                f"what came after final {wish.finals} of {seat.finals} is not known any more",
            ) from None
        self._occupants[seat.name] = client
        self._wait_no_more(seat)
        logger.info("session %s: its client is back", seat.name, extra={"session": seat.name})
        return seat

    def leave(self, seat: Seat, *, lost: bool, how: str) -> None:
        """The seat's connection has ended; `how` is for the log. lost: it was not meant to."""
        seat.client = None
        del self._occupants[seat.name]
        if lost and seat.key is not None:
            patience = seat.config.resume_seconds
            loop = asyncio.get_running_loop()
            self._waiting[seat.name] = loop.call_later(
                patience, self._give_up, seat, "its client did not come back"
            )
            logger.info(
                "session %s: %s; kept for %g s",
                seat.name,
                how,
                patience,
                extra={"session": seat.name},
            )
        else:
            self._give_up(seat, how)

    async def clear(self) -> None:
        """Give up what waits for clients, and finish what a transcript awaits."""
        for name in list(self._waiting):
            self._give_up(self._seats[name], "its client is not back, and the daemon stops")
        await self._finished.wait()

    def abandon(self) -> None:
        """Give up what is left, finished or not; no seat has a connection any more."""
        for seat in list(self._seats.values()):
            self._remove(seat, "dropped")

    def _claimed(self, wish: Resume, label: str) -> Seat:
        seat = self._seats.get(wish.session)
        if (
            seat is None
            or seat.key is None
            or seat.name in self._finishing
            or seat.label != label
            or not hmac.compare_digest(seat.key.encode(), wish.key.encode())
        ):
            raise ProtocolError("bad_resume", UNKNOWN)
        return seat

    def _give_up(self, seat: Seat, how: str) -> None:
        self._wait_no_more(seat)
        if seat.ended or seat.transcript is None:
            self._remove(seat, how)
            return
        # Nobody listens, but what was spoken belongs into the transcript.
        self._finishing.add(seat.name)
        self._finished.clear()
        seat.client = _Absent(self, seat, how)
        seat.wind_down(NORMAL)

    def _wait_no_more(self, seat: Seat) -> None:
        timer = self._waiting.pop(seat.name, None)
        if timer is not None:
            timer.cancel()

    def _remove(self, seat: Seat, how: str) -> None:
        """The end of a session, and its one line in the log."""
        self._wait_no_more(seat)
        del self._seats[seat.name]
        self._finishing.discard(seat.name)
        if not self._finishing:
            self._finished.set()
        pending = f", {seat.outstanding} given up" if seat.outstanding else ""
        token = f" (token {seat.label})" if seat.label else ""
        logger.info(
            "session %s%s: %s; %.1f s of audio in %.1f s, %d finals%s",
            seat.name,
            token,
            how,
            seat.seconds,
            seat.lasted,
            seat.finals,
            pending,
            extra={"session": seat.name},
        )
        seat.discard()


class _Absent:
    """In the place of a client that is gone: lets the session come to its end."""

    def __init__(self, seats: Seats, seat: Seat, how: str) -> None:
        self._seats = seats
        self._seat = seat
        self._how = how

    def tell(self, message: ServerMessage) -> None:
        """Nobody hears it."""

    def changed(self) -> None:
        """Nobody minds."""

    def over(self, _farewell: Farewell) -> None:
        """All that was spoken is written."""
        self._seats._remove(self._seat, self._how)  # noqa: SLF001 - its other half
