"""Authentication: bearer tokens and the origins of web pages. Pure but for reading the tokens' file.

The log names a token by its label alone; no message repeats its text.

A request carries its token in one of two headers, for browsers cannot set the first on a websocket:

    Authorization: Bearer TOKEN                                    (RFC 6750)
    Authorization: Token TOKEN, or the token alone                 (Deepgram, AssemblyAI)
    api-key: TOKEN, x-api-key: TOKEN                               (Azure, and others)
    Sec-WebSocket-Protocol: captiond.v1, captiond.token.TOKEN
    Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.TOKEN
    Sec-WebSocket-Protocol: token, TOKEN or bearer, TOKEN          (Deepgram)
    ?token=TOKEN                                                   (AssemblyAI, WhisperLive)
"""

import hashlib
import hmac
import ipaddress
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import Headers
from websockets.http11 import Request

from daemon.config import ConfigError

TOKEN_PROTOCOL = "captiond.token."  # noqa: S105 - what stands before a token, not one
KEY_PROTOCOLS = (TOKEN_PROTOCOL, "openai-insecure-api-key.")  # what stands before a token in one
SCHEMES = ("bearer", "token")
KEY_HEADERS = ("api-key", "x-api-key")
SECRET_HEADERS = ("authorization", "sec-websocket-protocol", *KEY_HEADERS)
_IN_QUERY = re.compile(r"token=[^&\s'\"]*")
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")  # characters of both a header and a subprotocol
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,40}")


class Tokens:
    """The tokens in force, by label; without any, all requests have the label ""."""

    def __init__(self, tokens: dict[str, str]) -> None:
        self._digests = {label: _digest(token) for label, token in tokens.items()}

    @classmethod
    def read(cls, path: str) -> Self:
        """From a file of lines `label token`; # begins a comment. An empty path is no tokens.

        Raises ConfigError, which names the line and never the token.
        """
        if not path:
            return cls({})
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ConfigError(f"cannot read the tokens in {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is no text: tokens stand there as `label token`") from None
        tokens: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            where = f"{path}, line {number}"
            if len(words) != 2 or not _LABEL.fullmatch(words[0]):
                raise ConfigError(
                    f"{where}: a line is `label token`, the label of letters, digits and . _ -"
                )
            if not _TOKEN.fullmatch(words[1]):
                raise ConfigError(
                    f"{where}: a token has 16 to 200 letters, digits and . _ ~ -; "
                    'make one with: python3 -c "import secrets; print(secrets.token_urlsafe())"'
                )
            if words[0] in tokens:
                raise ConfigError(f"{where}: the label {words[0]} stands there twice")
            tokens[words[0]] = words[1]
        if not tokens:
            raise ConfigError(f"{path} holds no token, so that nobody could connect")
        return cls(tokens)

    def __len__(self) -> int:
        return len(self._digests)

    def label(self, request: Request) -> str | None:
        """The label of the request's token; None where it carries no known one.

        A wrong token takes as long as a right one: all digests are compared, in constant time.
        """
        if not self._digests:
            return ""
        found = None
        for offered in map(_digest, _offered(request)):
            for label, digest in self._digests.items():
                if hmac.compare_digest(offered, digest):
                    found = label
        return found


def origin_allowed(headers: Headers, allowed: Sequence[str]) -> bool:
    """Whether a page of the request's origin may use the daemon.

    A request without an origin is no browser's. The daemon's own pages may, where its address is a
    number or localhost: the owner of another name could point it at this machine (DNS rebinding). All
    other origins must be listed, or "*".
    """
    origins = headers.get_all("Origin")
    if not origins:
        return True
    if len(origins) > 1:
        return False
    origin = origins[0].lower()
    if "*" in allowed or origin in (one.lower().rstrip("/") for one in allowed):
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    own = [host.lower() for host in headers.get_all("Host")] == [parts.netloc]
    return own and parts.scheme in {"http", "https"} and _names_no_domain(parts.hostname)


def _names_no_domain(host: str | None) -> bool:
    if host is None or host == "localhost":
        return host is not None
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _offered(request: Request) -> list[str]:
    headers = request.headers
    tokens = []
    for value in headers.get_all("Authorization"):
        scheme, _, token = value.strip().partition(" ")
        if not token:
            tokens.append(scheme)
        elif scheme.lower() in SCHEMES:
            tokens.append(token.strip())
    for name in KEY_HEADERS:
        tokens += headers.get_all(name)
    protocols = offered_protocols(headers)
    for before, name in zip(["", *protocols], protocols, strict=False):
        tokens += [name.removeprefix(one) for one in KEY_PROTOCOLS if name.startswith(one)]
        tokens += [name] * (before in SCHEMES)
    with suppress(ValueError):  # it is no URL
        tokens += parse_qs(urlsplit(request.path).query).get("token", [])
    return tokens[:8]  # a request with thousands of tokens would cost time


def offered_protocols(headers: Headers) -> list[str]:
    """The websocket subprotocols that a request offers, in order."""
    lines = headers.get_all("Sec-WebSocket-Protocol")
    return [name.strip() for line in lines for name in line.split(",")]


class KeysHidden(logging.Filter):
    """Takes keys out of what the websocket library logs of requests, at the level debug."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes."""
        if isinstance(record.args, tuple):
            texts = [str(one) for one in record.args]
            if len(texts) == 2 and texts[0].lower() in SECRET_HEADERS:
                record.args = (texts[0], "(hidden)")
            elif any("token=" in text for text in texts):
                record.args = tuple(_IN_QUERY.sub("token=(hidden)", text) for text in texts)
        return True


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
