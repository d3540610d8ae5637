"""Which protocols there are, and where each is spoken."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from streaming.dialects.dialect import Dialect, Opening
from streaming.dialects.native import Native
from streaming.protocol import SUBPROTOCOL


@dataclass(frozen=True, slots=True)
class Offer:
    """A protocol. title: whose it is. paths: on the daemon's port. port: key of the configuration that
    names a port of its own, if any. subprotocols: one of these must be offered, where any is.
    options: by the message that brings them. example: one line of a client's code; {url} is the daemon's.
    """

    title: str
    dialect: Callable[[Opening], Dialect]
    paths: tuple[str, ...]
    example: str
    subprotocols: tuple[str, ...] = ()
    port: str = ""
    options: tuple[tuple[str, type[Struct]], ...] = ()


NATIVE = Offer(
    title="captiond",
    dialect=Native,
    paths=("/", "/v1"),
    subprotocols=(SUBPROTOCOL,),
    example="captiond mic --url {url}",
)
OFFERS = (NATIVE,)
BY_PATH = {path: offer for offer in OFFERS for path in offer.paths}
