import json
from typing import Any

import pytest

from tests.support.fakes import health


@pytest.mark.parametrize(
    ("changes", "live", "ready", "says"),
    [
        ({}, 200, 200, "ready"),
        ({"full": True}, 200, 503, "all sessions are taken"),
        ({"late": True}, 200, 503, "finals are 3 s late"),
        ({"status": "warming_up", "model": None}, 200, 503, "still loading"),
        ({"status": "stopping"}, 200, 503, "stopping"),
        ({"status": "stalled"}, 503, 503, "stalled"),
    ],
)
def test_only_a_stall_asks_for_a_restart(
    changes: dict[str, Any], live: int, ready: int, says: str
) -> None:
    """A daemon that is full, late or loading needs time, not a restart."""
    one = health(**changes)
    assert one.livez().status == live
    assert one.readyz().status == ready
    assert says in str(one.readyz().body)
    assert ("Retry-After" in one.readyz().headers) == (ready == 503)


def test_a_stall_tells_for_how_long() -> None:
    assert "for 3 s no round" in str(health(status="stalled").livez().body)


def test_the_sentence_has_sessions_work_and_lag() -> None:
    assert health().sentence == "ready; 2 sessions, 3 utterances in work, lag 0.2 s"
    assert "2 sessions and 1 awaited back" in health(parked=1).sentence


def test_all_figures_are_in_the_json() -> None:
    reply = health().healthz({"finals": 5})
    body = json.loads(reply.body)
    assert (reply.status, reply.kind) == (200, "application/json")
    assert (body["status"], body["finals"]) == ("ok", 5)
    assert (body["waiting"], body["running"], body["superseded"]) == (1, 2, 4)
    assert health(status="stalled").healthz({}).status == 503
