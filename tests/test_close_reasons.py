"""Every way the daemon ends a connection is one that the websocket protocol and ours allow."""

import re
from pathlib import Path

import pytest
from websockets.frames import Close

from daemon.sessions import close_reasons
from daemon.sessions.close_reasons import NORMAL, REFUSED, CloseReason, busy, too_many_errors
from streaming.protocol import decode_server, encode

REASON_BYTES = 123  # RFC 6455, 5.5: a control frame carries 125 bytes, the code takes two
NAMED = {
    name: value for name, value in vars(close_reasons).items() if isinstance(value, CloseReason)
}
BUSY = busy("all 1000 sessions are taken")
CLOSE_REASONS = [*NAMED.values(), BUSY, too_many_errors(10), too_many_errors(10**9)]
DOCUMENTED = (Path(__file__).parents[1] / "docs" / "protocol.md").read_text(encoding="utf-8")


EXPLAINED = [one for one in CLOSE_REASONS if one not in (NORMAL, REFUSED)]


def test_all_are_looked_at() -> None:
    names = {"NORMAL", "SHUTTING_DOWN", "OVERDUE", "IDLE", "TIME_LIMIT", "REFUSED", "INTERNAL"}
    assert set(NAMED) == names


@pytest.mark.parametrize("ending", CLOSE_REASONS, ids=repr)
def test_code_and_reason_fit_into_a_close_frame(ending: CloseReason) -> None:
    """RFC 6455, 7.4.1: some codes may not be sent."""
    Close(ending.code, ending.reason).check()
    assert len(ending.reason.encode()) <= REASON_BYTES


@pytest.mark.parametrize("ending", CLOSE_REASONS, ids=repr)
def test_each_code_is_documented(ending: CloseReason) -> None:
    _, _, table = DOCUMENTED.partition("## Close codes")
    assert str(ending.code) in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)


def test_all_is_well_without_an_error() -> None:
    assert (NORMAL.code, NORMAL.error) == (1000, None)


def test_what_was_refused_has_been_explained_before() -> None:
    """The error that ends such a connection has been told in its dialect's own form."""
    assert (REFUSED.code, REFUSED.error) == (1008, None)
    assert REFUSED.reason == "see the error before"


@pytest.mark.parametrize("ending", EXPLAINED, ids=repr)
def test_any_other_end_is_explained_by_a_fatal_error(ending: CloseReason) -> None:
    """Which a client can read; code and reason say it again for those who see nothing else."""
    assert ending.code != NORMAL.code
    assert ending.reason
    assert ending.error is not None
    assert ending.error.fatal
    assert ending.error.message
    assert decode_server(encode(ending.error)) == ending.error


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        (too_many_errors(10), "10 errors"),
        (BUSY, "all 1000 sessions are taken; try again in a while"),
    ],
)
def test_it_is_told_in_words(ending: CloseReason, says: str) -> None:
    assert ending.error is not None
    assert ending.error.message.startswith(says)
