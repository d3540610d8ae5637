"""The verb `protocols`, and docs/protocols.md, whose tables are the code's."""

import json
import re

import pytest

from daemon import cli
from daemon.protocols import FURTHER
from streaming.dialects.offers import OFFERS
from tests.support import make_client_table
from tests.support.make_protocol_tables import PAGE, renewed


def printed(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert cli.main(["protocols", *flags]) == 0
    return capsys.readouterr().out


def test_every_protocol_is_listed_with_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--port", "9000")
    for offer in OFFERS:
        assert f"{offer.title}: ws://127.0.0.1:9000{offer.paths[0]}" in text
    for further in FURTHER:
        assert f"{further.title}:" in text
    assert "http://127.0.0.1:9000/v1/audio/transcriptions" in text
    assert text.count("is off") == 3


def test_ports_and_tls_are_those_of_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    flags = (
        "--host",
        "::1",
        "--vosk-port",
        "2700",
        "--tls-certificate",
        "x.pem",
        "--wyoming",
        "tcp://[::1]:10300",
    )
    text = printed(capsys, *flags)
    assert "vosk-transcriber --server ws://[::1]:2700" in text
    assert "wss://[::1]:8765/v1/listen" in text
    assert 'AsyncClient.from_uri("tcp://[::1]:10300")' in text
    assert 'base_url="https://[::1]:8765/v1"' in text


def test_wrong_settings_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["protocols", "--port", "no"]) == 2
    assert "captiond protocols: --port" in capsys.readouterr().err


def test_the_tables_of_options_are_those_of_the_code() -> None:
    """`python -m tests.support.make_protocol_tables` writes them."""
    text = PAGE.read_text(encoding="utf-8")
    assert renewed(text) == text


def test_the_table_of_clients_is_what_their_tests_gave() -> None:
    """`python -m tests.support.make_client_table` runs them and writes both."""
    results = json.loads(make_client_table.RESULTS.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    assert make_client_table.renewed(text, results) == text


def test_every_protocol_has_its_chapter() -> None:
    text = PAGE.read_text(encoding="utf-8")
    chapters = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [offer.title for offer in (*OFFERS, *FURTHER) if offer.options] == chapters[:-1]
    for chapter in re.split(r"^## ", text, flags=re.MULTILINE)[1:-1]:
        assert chapter.count("```python") == 2, "before and after"
        assert "Known differences" in chapter
