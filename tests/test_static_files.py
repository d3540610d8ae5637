import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from transformers.models.whisper.tokenization_whisper import LANGUAGES

from daemon.net.static_files import DOCUMENTS, STATIC, TYPES, read_files
from daemon.server import Daemon
from tests.support.fakes import ScriptedEngine
from tests.support.wire import exchange, serving

PATHS = sorted(read_files())
FILES = sorted(STATIC.resolve().rglob("*.*"))
SOURCES = [path for path in FILES if path.suffix in {".html", ".js", ".css", ".svg"}]
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
# Sub-rooms of the page, and what each may import.
MAY_IMPORT = {"protocol": set[str](), "audio": {"protocol"}, "ui": {"audio", "protocol"}}


def header(head: str, name: str) -> str | None:
    found = re.search(rf"^{name}: (.*)$", head.replace("\r", ""), re.MULTILINE | re.IGNORECASE)
    return found and found[1]


async def ask(daemon: Daemon, method: str, path: str, *lines: str) -> tuple[int, str, bytes]:
    """Status, headers and body of one request."""
    head, body = await exchange(daemon, f"{method} {path} HTTP/1.1", *lines)
    return int(head.split()[1]), head, body


async def test_every_file_is_served_as_what_it_is() -> None:
    async with serving(ScriptedEngine()) as daemon:
        for path in PATHS:
            name = DOCUMENTS.get(path) or path.removeprefix("/static/")
            status, head, body = await ask(daemon, "GET", path)
            assert status == 200
            assert header(head, "Content-Type") == TYPES[Path(name).suffix]
            assert body == (STATIC / name).read_bytes()


async def test_a_query_changes_nothing() -> None:
    """The overlay's script reads its options; the daemon ignores them."""
    async with serving(ScriptedEngine()) as daemon:
        _, _, plain = await ask(daemon, "GET", "/overlay")
        status, _, asked = await ask(daemon, "GET", "/overlay?size=60&align=left")
    assert (status, asked) == (200, plain)


async def test_head_tells_the_length_and_sends_nothing() -> None:
    async with serving(ScriptedEngine()) as daemon:
        for path in ("/", "/healthz", "/nothing"):
            _, get_head, body = await ask(daemon, "GET", path)
            _, head, nothing = await ask(daemon, "HEAD", path)
            assert nothing == b""
            assert header(head, "Content-Length") == header(get_head, "Content-Length")
            assert header(head, "Content-Length") == str(len(body))


async def test_a_copy_that_is_still_good_is_not_sent_again() -> None:
    """Also if the browser names several; a browser asks at each visit."""
    async with serving(ScriptedEngine()) as daemon:
        _, head, _ = await ask(daemon, "GET", "/")
        etag = header(head, "ETag")
        assert header(head, "Cache-Control") == "no-cache"
        for known in (f"{etag}", f'"other", W/{etag}'):
            status, head, body = await ask(daemon, "GET", "/", f"If-None-Match: {known}")
            assert (status, body) == (304, b"")
            assert header(head, "ETag") == etag
        status, _, body = await ask(daemon, "GET", "/", 'If-None-Match: "other"')
        assert status == 200
        assert body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_only_reading_is_allowed(method: str) -> None:
    async with serving(ScriptedEngine()) as daemon:
        for path in ("/", "/static/ui/main.js", "/healthz", "/v1", "/nothing"):
            status, head, _ = await ask(daemon, method, path)
            assert status == 405
            assert header(head, "Allow") == "GET, HEAD"


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/ui",
        "/static/main.js",
        "/static/ui/../ui/main.js",
        "/static/index.html",
        "/static/../page.py",
        "/static/..%2fpage.py",
        "/static/%2e%2e/page.py",
        "/static//ui/main.js",
        "//static/ui/main.js",
        "/static/ui/main.js/",
        "/static/ui/MAIN.JS",
        "/overlay/",
        "/index.html",
        "/static/ui/main.js%00",
        "/etc/passwd",
    ],
)
async def test_nothing_but_the_table_is_served(path: str) -> None:
    async with serving(ScriptedEngine()) as daemon:
        assert (await ask(daemon, "GET", path))[0] == 404


async def test_the_page_is_closed_to_the_rest_of_the_web() -> None:
    """The policy allows this origin alone: no inline script, no eval, no frame."""
    async with serving(ScriptedEngine()) as daemon:
        for path in PATHS:
            _, head, _ = await ask(daemon, "GET", path)
            policy = header(head, "Content-Security-Policy") or ""
            sources = {
                word
                for rule in policy.split("; ")
                for word in rule.split()[1:]
                if word != "'script'"
            }
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert sources == {"'none'", "'self'"}
            assert header(head, "X-Content-Type-Options") == "nosniff"


def test_the_languages_offered_are_whispers() -> None:
    text = (STATIC / "ui" / "languages.js").read_text("utf-8").partition(".split")[0]
    codes = " ".join(re.findall(r'"([a-z ]+)"', text)).split()
    assert sorted(codes) == sorted(LANGUAGES)


def references(path: Path) -> set[Path]:
    """The files that a document, script or style names, types in comments included."""
    base = path.parents[1] if path.suffix == ".html" else path.parent
    text = path.read_text("utf-8")
    names = re.findall(r"""["']([\w./-]+\.(?:js|css|svg|woff2))["']""", text)
    return {(base / name).resolve() for name in names}


def test_no_file_names_another_host() -> None:
    """XML's own name is the only address."""
    for path in SOURCES:
        addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+\S*", path.read_text("utf-8"))
        assert set(addresses) <= {'http://www.w3.org/2000/svg"'}, path.name


def test_every_file_is_used_and_every_file_used_is_there() -> None:
    """The documents, scripts and styles name all files but themselves and the font's licence."""
    named = set[Path]().union(*map(references, SOURCES))
    named |= {STATIC.resolve() / name for name in ("fonts/OFL.txt", *DOCUMENTS.values())}
    assert named == set(FILES)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_imports_only_from_its_own_room_and_those_below(path: Path) -> None:
    """The rooms that each may import are in MAY_IMPORT; imports of types count, too."""
    room = path.parent.name
    rooms = {target.parent.name for target in references(path)}
    assert rooms <= MAY_IMPORT[room] | {room}


def test_no_script_imports_itself_through_others() -> None:
    graph = {path: references(path) for path in SCRIPTS}
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)
