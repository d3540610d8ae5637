"""How a connection may end: close code and reason (RFC 6455, 7.4), and what is said before.

Only what the daemon itself decides; a frame above the limit is closed by the websocket layer. Codes
from 4000 on are captiond's own.
"""

from dataclasses import dataclass

from streaming.protocol import Error


@dataclass(frozen=True, slots=True)
class CloseReason:
    """How a connection ends: websocket close code and reason, after `error`, if there is one."""

    code: int
    reason: str
    error: Error | None = None


NORMAL = CloseReason(1000, "")
SHUTTING_DOWN = CloseReason(
    1001,
    "the daemon is shutting down",
    Error(
        code="shutting_down",
        message="the daemon is shutting down; the finals of all that was spoken have been sent; "
        "connect again soon",
        fatal=True,
    ),
)
OVERDUE = CloseReason(
    1008,
    "no start message in time",
    Error(code="bad_order", message="no start message came in time", fatal=True),
)
IDLE = CloseReason(
    4000,
    "idle",
    Error(
        code="idle",
        message="nothing came for too long: send audio, silence included, or a flush now and then",
        fatal=True,
    ),
)
TIME_LIMIT = CloseReason(
    4001,
    "time limit",
    Error(
        code="time_limit",
        message="the session has lasted as long as it may; open another one",
        fatal=True,
    ),
)
REFUSED = CloseReason(1008, "see the error before")  # of a dialect in which one error is the end
INTERNAL = CloseReason(
    1011,
    "internal error",
    Error(code="internal", message="a fault of the daemon; its log has the details", fatal=True),
)


def busy(reason: str) -> CloseReason:
    """For a client that was let in without room, and starts a session."""
    message = f"{reason}; try again in a while"
    return CloseReason(1013, "try again later", Error(code="busy", message=message, fatal=True))


def too_many_errors(count: int) -> CloseReason:
    """For a client that got `count` things wrong."""
    message = f"{count} errors are too many: see the messages before this one"
    error = Error(code="bad_message", message=message, fatal=True)
    return CloseReason(1008, "too many protocol errors", error)
