from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.datastructures import Headers
from websockets.http11 import Request

from daemon.config import ConfigError
from daemon.net.auth import Tokens, offered_protocols, origin_allowed

SECRET = "a-token-of-some-length"
OTHER = "another.token~of-length"
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126))  # of a header


def read(folder: Path, text: str) -> Tokens:
    path = folder / "tokens"
    path.write_text(text)
    return Tokens.read(str(path))


def test_the_file_has_a_label_and_a_token_a_line(tmp_path: Path) -> None:
    tokens = read(tmp_path, f"# who may\nalice {SECRET}\n\n  bob\t{OTHER} # the other\n")
    assert len(tokens) == 2
    assert tokens.label(Request("/", Headers(Authorization=f"Bearer {SECRET}"))) == "alice"
    assert tokens.label(Request("/", Headers(Authorization=f"bearer  {OTHER} "))) == "bob"


def test_a_browser_offers_its_token_as_a_subprotocol(tmp_path: Path) -> None:
    tokens = read(tmp_path, f"alice {SECRET}")
    offer = Headers({"Sec-WebSocket-Protocol": f"captiond.v1, captiond.token.{SECRET}"})
    assert tokens.label(Request("/", offer)) == "alice"
    assert offered_protocols(offer) == ["captiond.v1", f"captiond.token.{SECRET}"]


@pytest.mark.parametrize(
    "headers",
    [
        Headers(),
        Headers(Authorization=f"Basic {SECRET}"),
        Headers(Authorization="Bearer"),
        Headers(Authorization=f"Bearer {SECRET}x"),
        Headers(Authorization=f"Bearer {SECRET[:-1]}"),
        Headers({"Sec-WebSocket-Protocol": SECRET}),
    ],
)
def test_what_is_not_the_token_is_nobodys(headers: Headers) -> None:
    assert Tokens({"alice": SECRET}).label(Request("/", headers)) is None


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {"Authorization": SECRET}),
        ("/", {"Authorization": f"Token {SECRET}"}),
        ("/", {"api-key": SECRET}),
        ("/", {"x-api-key": SECRET}),
        ("/", {"Sec-WebSocket-Protocol": f"realtime, openai-insecure-api-key.{SECRET}"}),
        ("/", {"Sec-WebSocket-Protocol": f"token, {SECRET}"}),
        ("/", {"Sec-WebSocket-Protocol": f"bearer, {SECRET}"}),
        (f"/v3/ws?sample_rate=16000&token={SECRET}", {}),
    ],
)
def test_each_protocol_has_its_own_way_to_send_a_token(path: str, headers: dict[str, str]) -> None:
    tokens = Tokens({"alice": SECRET})
    assert tokens.label(Request(path, Headers(headers))) == "alice"
    wrong = {name: value.replace(SECRET, OTHER) for name, value in headers.items()}
    assert tokens.label(Request(path.replace(SECRET, OTHER), Headers(wrong))) is None


def test_what_is_no_url_has_no_token() -> None:
    assert Tokens({"alice": SECRET}).label(Request("//[?token=x", Headers())) is None


def test_without_tokens_everybody_is_let_in() -> None:
    assert Tokens.read("").label(Request("/", Headers(Authorization="Bearer nonsense"))) == ""


@given(VALUES)
def test_no_other_text_is_a_token(text: str) -> None:
    headers = Headers()
    headers["Authorization"] = f"Bearer {text}"
    assert (Tokens({"a": SECRET}).label(Request("/", headers)) == "a") == (text.strip() == SECRET)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("alice", "line 1: a line is `label token`"),
        (f"al/ice {SECRET}", "line 1: a line is"),
        (f"alice {SECRET}\nbob short", "line 2: a token has 16 to 200"),
        (f"alice {SECRET}/=", "line 1: a token has"),
        (f"alice {SECRET}\nalice {OTHER}", "line 2: the label alice stands there twice"),
        ("# nobody yet\n", "holds no token"),
    ],
)
def test_a_wrong_line_is_named_but_no_token_repeated(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert says in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "short" not in str(caught.value).replace("line", "")


def test_a_file_that_cannot_be_read_lets_nobody_in(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the tokens in .*absent: No such file"):
        Tokens.read(str(tmp_path / "absent"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is no text"):
        Tokens.read(str(tmp_path / "binary"))


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "may"),
    [
        (None, "127.0.0.1:8765", (), True),
        ("http://127.0.0.1:8765", "127.0.0.1:8765", (), True),
        ("https://127.0.0.1:8765", "127.0.0.1:8765", (), True),
        ("http://localhost:8765", "localhost:8765", (), True),
        ("http://LOCALHOST:8765", "localhost:8765", (), True),
        ("http://[::1]:8765", "[::1]:8765", (), True),
        ("http://192.168.1.7:8765", "192.168.1.7:8765", (), True),
        ("http://127.0.0.1:3000", "127.0.0.1:8765", (), False),
        ("https://evil.example", "127.0.0.1:8765", (), False),
        ("http://evil.example:8765", "evil.example:8765", (), False),
        ("http://localhost.evil.example:8765", "localhost.evil.example:8765", (), False),
        ("null", "127.0.0.1:8765", (), False),
        ("file://", "", (), False),
        ("https://example.org", "captions.example.org", ("https://example.org",), True),
        ("https://Example.org", "captions.example.org", ("https://example.ORG/",), True),
        ("http://example.org", "captions.example.org", ("https://example.org",), False),
        ("https://example.org.evil", "x", ("https://example.org",), False),
        ("null", "127.0.0.1:8765", ("null",), True),
        ("https://evil.example", "x", ("*",), True),
        ("http://[::1", "[::1", (), False),
    ],
)
def test_origins(origin: str | None, host: str, allowed: tuple[str, ...], *, may: bool) -> None:
    """Its own address, where that is no name that somebody else could point here, and the list."""
    headers = Headers(Host=host)
    if origin is not None:
        headers["Origin"] = origin
    assert origin_allowed(headers, allowed) is may


def test_two_origins_are_no_browsers() -> None:
    headers = Headers(Host="127.0.0.1")
    headers["Origin"] = "http://127.0.0.1"
    headers["Origin"] = "http://127.0.0.1"
    assert not origin_allowed(headers, ())


@given(VALUES, VALUES)
def test_any_origin_is_judged(origin: str, host: str) -> None:
    headers = Headers()
    headers["Origin"], headers["Host"] = origin, host
    assert origin_allowed(headers, ()) in {True, False}
