"""The daemon's health, for probes, for `captiond status` and for the service manager. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from daemon.net.http import JSON, Reply
from daemon.recognition.scheduler import SchedulerStats

Status = Literal["ok", "warming_up", "stalled", "stopping"]

RETRY_AFTER = "5"  # seconds, for HTTP 503 and 429
NO_STORE = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class Health:
    """The daemon's state at one moment.

    sessions: those with a client; parked: those that await their client back; finishing: those that
    still write their transcripts. model: None while it loads. drafter: None without one. uptime:
    seconds. full: no session is free. late: a new session would wait too long.
    """

    status: Status
    stats: SchedulerStats
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
        """Whether a new session would be accepted."""
        return self.unready == ""

    @property
    def unready(self) -> str:
        """The reason why a new session would be refused; empty if it would not."""
        if self.status == "warming_up":
            return "the model is still loading"
        if self.status != "ok":
            return f"the daemon is {self.status}"
        if self.late:
            return f"finals are {self.stats.wait:.0f} s late"
        return "all sessions are taken" if self.full else ""

    @property
    def sentence(self) -> str:
        """One line for `systemctl status`."""
        stats = self.stats
        state = self.unready or "ready"
        parked = f" and {self.parked} awaited back" if self.parked else ""
        return (
            f"{state}; {self.sessions} sessions{parked}, {stats.waiting + stats.running} "
            f"utterances in work, lag {stats.lag:.1f} s"
        )

    def livez(self) -> Reply:
        """The liveness probe: 503 asks for a restart."""
        if self.live:
            return Reply(HTTPStatus.OK, "live\n", headers=NO_STORE)
        idle = self.stats.idle
        text = f"stalled: work waits, and for {idle:.0f} s no round of the model has finished\n"
        return Reply(HTTPStatus.SERVICE_UNAVAILABLE, text, headers=NO_STORE)

    def readyz(self) -> Reply:
        """The readiness probe: 503 asks a proxy to send clients elsewhere."""
        if self.ready:
            return Reply(HTTPStatus.OK, "ready\n", headers=NO_STORE)
        return Reply(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"not ready: {self.unready}\n",
            headers={"Retry-After": RETRY_AFTER, **NO_STORE},
        )

    def healthz(self, counts: Mapping[str, float]) -> Reply:
        """The state as JSON, with the counters since the daemon started."""
        stats = self.stats
        body = {
            "status": self.status,
            "ready": self.ready,
            "model": self.model,
            "drafter": self.drafter,
            "uptime_seconds": round(self.uptime, 1),
            "sessions": self.sessions,
            "parked": self.parked,
            "finishing": self.finishing,
            "waiting": stats.waiting,
            "running": stats.running,
            "lag_seconds": round(stats.lag, 3),
            "partials": stats.partials,
            "superseded": stats.superseded,
            "failed": stats.failed,
            **counts,
        }
        code = HTTPStatus.OK if self.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
        return Reply(code, json.dumps(body) + "\n", JSON, NO_STORE)
