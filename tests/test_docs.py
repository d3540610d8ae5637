"""What README.md, CHANGELOG.md and docs/ say, held against the code: tables, examples, links."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from daemon import config
from streaming import protocol
from tests.support.python import ROOT
from tests.support.standin import Peer, closed, final, partial, standin_thread

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
KINDS: list[Any] = [*get_args(protocol.ClientMessage), *get_args(protocol.ServerMessage)]
LINES = re.findall(r"^([→←]) (\{.*\})$", f"{README}\n{PROTOCOL}", re.MULTILINE)


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of `text` in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(text: str, title: str) -> str:
    """From the heading `title` to the next heading."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no heading {title!r}"
    return found[1]


def row(key: str) -> str:
    """A key of the configuration, as the README's table should have it."""
    default, meaning = json.dumps(config.KEYS[key].default), config.about(key).description
    return f"| `{key}` | `{default}` | {config.accepted(key)} | {meaning} |"


def test_the_table_of_settings_is_that_of_the_code() -> None:
    """Every key in order, with its default, its bounds and its help; no other."""
    table = [line for line in section(README, "Configure").splitlines() if line.startswith("| `")]
    assert table == [row(key) for key in config.KEYS]


def test_the_example_configuration_is_accepted(tmp_path: Path) -> None:
    (example,) = blocks(README, "toml")
    (tmp_path / "captiond.toml").write_text(example, encoding="utf-8")
    settings = config.read({"config": str(tmp_path / "captiond.toml")}, {})
    assert settings != config.Config(), "it shows nothing that is not the default"


def test_the_library_example_runs() -> None:
    """As printed, but for the address: it sends the whole sample and prints both kinds of captions."""
    (example,) = blocks(README, "python")

    async def script(peer: Peer) -> None:
        await peer.open()
        await peer.send(partial("how do you"))
        while "stop" not in {message.__struct_config__.tag for message in peer.messages}:
            await peer.receive()
        await peer.send(final("How do you do?"), closed())

    with standin_thread(script) as server:
        assert "ws://127.0.0.1:8765" in example
        program = example.replace("ws://127.0.0.1:8765", server.url)
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        assert done.stdout == "… how do you\n   0.0 s How do you do?\n"
        assert len(server.peers[0].audio) > 20 * 16_000 * 2


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__struct_config__.tag)
def test_every_message_is_documented_with_all_its_fields(kind: Any) -> None:
    text = section(PROTOCOL, f"`{kind.__struct_config__.tag}`")
    documented = set(re.findall(r"`(\w+)`", text))
    assert set(kind.__struct_fields__) <= documented


def test_the_limits_are_documented() -> None:
    text = section(PROTOCOL, "`ready`")
    assert set(protocol.Limits.__struct_fields__) <= set(re.findall(r"`(\w+)`", text))


def test_the_defaults_of_start_are_those_of_the_code() -> None:
    (start,) = (kind for kind in KINDS if kind.__struct_config__.tag == "start")
    text = section(PROTOCOL, "`start`")
    table = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", text, re.MULTILINE))
    defaults = {field.name: field.default for field in msgspec.structs.fields(start)}
    assert {name: json.loads(shown.strip("`")) for name, shown in table.items()} == defaults


def test_the_error_codes_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section(PROTOCOL, "`error`"), re.MULTILINE)
    assert set(rows) == {*get_args(protocol.ErrorCode), *protocol.Error.__struct_fields__}


@pytest.mark.parametrize(("arrow", "line"), LINES)
def test_an_example_message_is_valid(arrow: str, line: str) -> None:
    decode: Any = protocol.decode_client if arrow == "→" else protocol.decode_server
    decode(line)


def test_there_are_example_messages() -> None:
    """Both pages show a conversation from start to closed."""
    kinds = [json.loads(line)["type"] for _, line in LINES]
    assert kinds.count("start") == kinds.count("closed") == 2


def test_the_way_of_a_frame_leads_through_files_and_functions_that_exist() -> None:
    (way,) = blocks(
        section(DESIGN, "The way of a frame of audio, from the socket to the caption"), ""
    )
    for line in way.splitlines():
        path = ROOT / line.split()[0]
        for named in re.findall(r"[\w/]+\.py", line):
            assert (ROOT / named).is_file() or list((ROOT / line.split("/")[0]).rglob(named)), named
        for function in re.findall(r"(\w+)\(", line):
            assert f"def {function}(" in path.read_text(encoding="utf-8"), f"{function} in {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [
        link for link in links if "://" not in link and not (page.parent / link).resolve().exists()
    ]
    assert not missing


def test_the_picture_needs_no_network() -> None:
    """Nothing in it is fetched: no web font, no image."""
    picture = (ROOT / "docs" / "captions.svg").read_text(encoding="utf-8")
    addresses = re.findall(r"https?://[^\"')\s]+", picture)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in picture
