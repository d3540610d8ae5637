"""Cross-origin requests: what lets a page of another origin read an answer (the Fetch standard, 3.2).

OpenAI's own API lets pages of every origin; here they are those of `allowed_origins`, as for websockets.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from websockets.http11 import Request

from daemon.net.auth import origin_allowed
from daemon.net.http import Reply

REMEMBERED = "600"  # seconds that a browser may know the answer of a preflight
EXPOSED = "dg-request-id, retry-after"  # beside those that pages may always read


def cors(request: Request, allowed: Sequence[str]) -> Mapping[str, str]:
    """The headers of an answer; none for a request of no page, or of one that may not ask."""
    origin = request.headers.get("Origin")
    if origin is None or not origin_allowed(request.headers, allowed):
        return {}
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": EXPOSED,
        "Vary": "Origin",
    }


def preflight(request: Request, allowed: Sequence[str], methods: Sequence[str]) -> Reply:
    """The answer to OPTIONS: what a page may ask of this path. methods: those that it has."""
    let_in = cors(request, allowed)
    headers = {"Allow": ", ".join([*methods, "OPTIONS"]), **let_in}
    if let_in:
        headers["Access-Control-Allow-Methods"] = ", ".join(methods)
        headers["Access-Control-Max-Age"] = REMEMBERED
        headers["Vary"] = "Origin, Access-Control-Request-Headers"
        wanted = request.headers.get_all("Access-Control-Request-Headers")
        if wanted:
            headers["Access-Control-Allow-Headers"] = ", ".join(wanted)
    return Reply(HTTPStatus.OK, "", headers=headers)
