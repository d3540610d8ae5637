"""`captiond status`: the health of a running daemon, in words or as JSON.

Reads it over HTTP, as any probe could. Needs the standard library alone.
"""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from clients.handshake import DEFAULT_URL, is_local

NAME = "captiond status"
PATIENCE_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    url = os.environ.get("CAPTIOND_URL", DEFAULT_URL)
    parser.add_argument(
        "--url", default=url, help="the daemon (variable CAPTIOND_URL; now %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="all figures, for programs")
    parser.epilog = (
        "The exit status is 0 for a daemon that is well, 1 for one that is not (loading, stalled, "
        "stopping), 2 where none answers. A daemon that asks for a token gets that of the variable "
        "CAPTIOND_TOKEN."
    )


def run(args: argparse.Namespace) -> int:
    """Print the status. 0: the daemon is well; 1: it is not; 2: no daemon answers."""
    try:
        healthy, figures = ask(args.url, os.environ.get("CAPTIOND_TOKEN"))
    except ValueError as error:
        sys.stderr.write(f"{NAME}: {args.url}: {error}\n")
        return 2
    except OSError as error:
        reason = getattr(error, "reason", error)
        sys.stderr.write(
            f"{NAME}: no daemon answers at {args.url} ({reason}); start one there: captiond serve\n"
        )
        return 2
    if args.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        sys.stdout.write("".join(f"{name:12} {text}\n" for name, text in described(figures)))
    return 0 if healthy else 1


def ask(url: str, token: str | None) -> tuple[bool, dict[str, Any]]:
    """Whether the daemon at the websocket `url` is well, and its figures.

    Raises OSError where nothing answers, ValueError where the answer is not a daemon's.
    """
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme)
    if scheme is None:
        raise ValueError(f"a daemon's URL looks like {DEFAULT_URL}")
    address = urlunsplit((scheme, parts.netloc, "/healthz", "", ""))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # The scheme is one of two, above.
    request = urllib.request.Request(address, headers=headers)  # noqa: S310
    proxies = urllib.request.ProxyHandler({} if is_local(url) else None)
    try:
        with urllib.request.build_opener(proxies).open(request, timeout=PATIENCE_S) as response:
            return True, _figures(response.read())
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
        if error.code == 503:
            return False, _figures(body)
        said = body.decode(errors="replace").strip() or str(error)
        if error.code == 401:
            said = f"{said} (captiond status takes it from the variable CAPTIOND_TOKEN)"
        raise ValueError(said) from error


def _figures(body: bytes) -> dict[str, Any]:
    figures = json.loads(body)
    if not isinstance(figures, dict) or "status" not in figures:
        raise ValueError("it is no captiond")
    return figures


def described(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """The figures in words, as pairs of name and text."""
    hours, seconds = divmod(round(figures["uptime_seconds"]), 3600)
    parked = f", {figures['parked']} awaited back" if figures["parked"] else ""
    drafter = f", drafter {figures['drafter']}" if figures["drafter"] else ""
    decoded = (
        f"{figures['finals']} finals, {figures['partials']} partials, "
        f"{figures['superseded']} partials left out, {figures['failed']} failed"
    )
    return [
        ("status", figures["status"] + ("" if figures["ready"] else ", takes no new session")),
        ("model", (figures["model"] or "loading") + drafter),
        ("up", f"{hours} h {seconds // 60} min"),
        ("sessions", f"{figures['sessions']}{parked}; {figures['started']} so far"),
        ("returns", f"{figures['resumed']} resumed, {figures['refused']} refused"),
        ("audio", f"{figures['audio_seconds']:.0f} s heard"),
        ("work", f"{figures['running']} decoded now, {figures['waiting']} waiting"),
        ("lag", f"{figures['lag_seconds']:.1f} s"),
        ("decoded", decoded),
        ("drafts", f"{figures['alpha']:.0%} accepted, {figures['tau']:.2f} tokens a pass"),
    ]
