import io
import json
import logging
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.monitoring import log
from daemon.monitoring.log import JournalFormatter, JsonFormatter, TextFormatter, escaped

FORGED = "\n2026-01-01 00:00:00,000 ERROR daemon: all is lost\x1b[2J\u202e\u2028"


def record(message: str, level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("daemon.x", level, "x.py", 1, "said %s", (message,), None)
    vars(made).update(extra)
    return made


def failing(text: str) -> logging.LogRecord:
    """The record of an exception whose text a client chose."""
    made = record("it")
    made.exc_info = ValueError, ValueError(text), None
    return made


@pytest.mark.parametrize("formatter", [TextFormatter(), JournalFormatter(), JsonFormatter()])
def test_a_client_cannot_forge_an_entry(formatter: logging.Formatter) -> None:
    text = formatter.format(record(FORGED))
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    assert "all is lost" in text


def test_a_traceback_cannot_forge_an_entry_either() -> None:
    """Its lines do not begin where entries do."""
    first, *rest = TextFormatter().format(failing(FORGED)).splitlines()
    assert first.endswith("INFO daemon.x: said it")
    assert all(line.startswith("    | ") and line.isprintable() for line in rest)
    assert "ValueError" in "".join(rest)


@given(st.text())
def test_escaping_leaves_the_printable_alone_and_nothing_else(text: str) -> None:
    assert escaped(text).isprintable()
    if text.isprintable():
        assert escaped(text) == text


def test_the_journal_gets_a_priority_for_every_line() -> None:
    assert JournalFormatter().format(record("x", logging.WARNING)) == "<4>daemon.x: said x"
    lines = JournalFormatter().format(failing("x")).splitlines()
    assert {line[:3] for line in lines} == {"<6>"}
    assert JournalFormatter().format(record("x", logging.CRITICAL)).startswith("<2>")


def test_json_tells_the_session() -> None:
    entry = json.loads(JsonFormatter().format(record("x", session="5f2a")))
    assert entry | {"time": ""} == {
        "time": "",
        "level": "info",
        "logger": "daemon.x",
        "message": "said x",
        "session": "5f2a",
    }
    assert entry["time"].endswith("+00:00")
    assert "ValueError: y" in json.loads(JsonFormatter().format(failing("y")))["trace"]


@pytest.mark.parametrize(
    ("level", "least"),
    [
        ("debug", logging.DEBUG),
        ("info", logging.WARNING),
        ("warning", logging.WARNING),
        ("error", logging.ERROR),
    ],
)
def test_the_websocket_library_speaks_only_of_trouble(level: str, least: int) -> None:
    """Each connection would be lines of the log; for debugging they are wanted."""
    log.begin(level, "text", {})
    assert logging.getLogger("websockets.server").getEffectiveLevel() == least


@pytest.mark.parametrize(("journal", "begins"), [(True, "<6>"), (False, "20")])
def test_auto_asks_where_standard_error_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str, *, journal: bool
) -> None:
    """The manager names the device and inode of its journal's stream."""
    with (tmp_path / "stderr").open("w+") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        stat = os.fstat(stream.fileno())
        named = f"{stat.st_dev}:{stat.st_ino}" if journal else "0:0"
        log.begin("info", "auto", {"JOURNAL_STREAM": named})
        logging.getLogger("daemon").info("x")
        stream.seek(0)
        assert stream.read().startswith(begins)


def test_beginning_again_replaces_what_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload may change the format; nothing is said twice."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    log.begin("info", "text", {})
    log.begin("warning", "json", {})
    logging.getLogger("daemon").info("x")
    logging.getLogger("daemon").warning("y")
    assert json.loads(stream.getvalue())["message"] == "y"
