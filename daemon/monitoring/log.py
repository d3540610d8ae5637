"""The log: to standard error, as text, for the journal, or as JSON lines.

An entry looks like one entry, whatever its message: characters that end a line, move the cursor or
turn the direction of writing are escaped. A record may carry the attribute `session`.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

Format = Literal["auto", "text", "json", "journal"]

HANDLER = "captiond"  # the handler's name, by which a later `begin` finds it

# Priorities of sd-daemon(3), by level.
PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


def escaped(text: str) -> str:
    """`text` with everything that is not printable as a backslash sequence."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )


class TextFormatter(logging.Formatter):
    """One line for an entry; the lines of a traceback are indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """The entry without its traceback."""
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802 - the library's name
        """The traceback."""
        trace = super().formatException(ei)  # type: ignore[arg-type]  # typeshed hides its name
        return "\n".join(f"    | {escaped(line)}" for line in trace.splitlines())


class JournalFormatter(TextFormatter):
    """Lines for the journal, which adds the time: each begins with its priority."""

    def __init__(self) -> None:
        super().__init__()
        self._style = logging.PercentStyle("%(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Every line of the entry."""
        priority = PRIORITIES.get(record.levelno, 2)
        lines = super().format(record).splitlines()
        return "\n".join(f"<{priority}>{line}" for line in lines)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, and session and trace if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (session := getattr(record, "session", None)) is not None:
            entry["session"] = session
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def begin(level: str, form: Format, environment: Mapping[str, str]) -> None:
    """Log from `level` ("debug", "info", …) on, in place of what was set before.

    The websocket library's messages are logged from warnings on; all of them at level "debug".
    """
    least = logging.getLevelNamesMapping()[level.upper()]
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if handler.name == HANDLER:
            root.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.name = HANDLER
    handler.setFormatter(formatter(form, journal=_is_journal(environment)))
    root.addHandler(handler)
    root.setLevel(least)
    quieter = least if least == logging.DEBUG else max(least, logging.WARNING)
    logging.getLogger("websockets").setLevel(quieter)


def formatter(form: Format, *, journal: bool) -> logging.Formatter:
    """The formatter that `form` names. journal: whether that is where standard error goes."""
    match form:
        case "json":
            return JsonFormatter()
        case "journal":
            return JournalFormatter()
        case "text":
            return TextFormatter()
        case "auto":
            return JournalFormatter() if journal else TextFormatter()


def _is_journal(environment: Mapping[str, str]) -> bool:
    """Whether standard error is the journal's (systemd.exec(5), JOURNAL_STREAM)."""
    try:
        stream = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):  # standard error is no file
        return False
    return environment.get("JOURNAL_STREAM") == f"{stream.st_dev}:{stream.st_ino}"
