"""How the daemon is, in words for probes, for `captiond status` and for the service manager. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from daemon.net.http import JSON, Reply
from daemon.recognition.scheduler import Facts

Status = Literal["ok", "warming_up", "stalled", "stopping"]

RETRY_AFTER = "5"  # seconds, for HTTP 503 and 429
NO_STORE = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class Health:
    """The daemon at one moment.

    sessions: those with a client; parked: those whose client is awaited back;
    finishing: those that are over but for their transcripts. model: None while it
    loads. drafter: None without one. uptime: seconds. full: no session is free. late: a new one would wait too long.
    """

    status: Status
    facts: Facts
    sessions: int
    parked: int
    finishing: int
    model: str | None
    drafter: str | None
    uptime: float
    full: bool
    late: bool

    @property
    def live(self) -> bool:
        """False when work waits and no round of the model finishes: only a restart helps."""
        return self.status != "stalled"

    @property
    def ready(self) -> bool:
        """Whether a new session would be let in."""
        return self.unready == ""

    @property
    def unready(self) -> str:
        """Why a new session would not be let in; empty if it would."""
        if self.status == "warming_up":
            return "the model is still loading"
        if self.status != "ok":
            return f"the daemon is {self.status}"
        if self.late:
            return f"finals are {self.facts.wait:.0f} s late"
        return "all sessions are taken" if self.full else ""

    @property
    def sentence(self) -> str:
        """One line for `systemctl status`."""
        facts = self.facts
        state = self.unready or "ready"
        parked = f" and {self.parked} awaited back" if self.parked else ""
        return (
            f"{state}; {self.sessions} sessions{parked}, {facts.waiting + facts.running} "
            f"utterances in work, lag {facts.lag:.1f} s"
        )

    def livez(self) -> Reply:
        """The probe that asks for a restart by failing."""
        if self.live:
            return Reply(HTTPStatus.OK, "live\n", headers=NO_STORE)
        idle = self.facts.idle
        text = f"stalled: work waits, and for {idle:.0f} s no round of the model has finished\n"
        return Reply(HTTPStatus.SERVICE_UNAVAILABLE, text, headers=NO_STORE)

    def readyz(self) -> Reply:
        """The probe that asks for clients to be sent elsewhere by failing."""
        if self.ready:
            return Reply(HTTPStatus.OK, "ready\n", headers=NO_STORE)
        return Reply(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"not ready: {self.unready}\n",
            headers={"Retry-After": RETRY_AFTER, **NO_STORE},
        )

    def healthz(self, counts: Mapping[str, float]) -> Reply:
        """All of it as JSON, and what was counted since the daemon began."""
        facts = self.facts
        body = {
            "status": self.status,
            "ready": self.ready,
            "model": self.model,
            "drafter": self.drafter,
            "uptime_seconds": round(self.uptime, 1),
            "sessions": self.sessions,
            "parked": self.parked,
            "finishing": self.finishing,
            "waiting": facts.waiting,
            "running": facts.running,
            "lag_seconds": round(facts.lag, 3),
            "partials": facts.partials,
            "superseded": facts.superseded,
            "failed": facts.failed,
            **counts,
        }
        code = HTTPStatus.OK if self.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
        return Reply(code, json.dumps(body) + "\n", JSON, NO_STORE)
