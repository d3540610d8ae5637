"""The verb `protocols`: which wire protocols the daemon speaks, where, and a line of a client's code for each."""

import argparse
import os
import sys
from collections.abc import Iterator

from daemon import config
from streaming.dialects.offers import OFFERS, Offer
from streaming.dialects.options import table

SUMMARY = "list the protocols that the daemon speaks, and where"

HEADING = ("| option | taken | what it does |", "|---|---|---|")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The daemon's own flags: they say where it listens."""
    config.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list. 0; 2: wrong settings."""
    try:
        settings = config.read(vars(args), os.environ)
    except config.ConfigError as error:
        sys.stderr.write(f"captiond protocols: {error}\n")
        return 2
    for offer in OFFERS:
        sys.stdout.write("\n".join(entry(offer, settings)) + "\n")
    return 0


def entry(offer: Offer, settings: config.Config) -> Iterator[str]:
    """A protocol's lines: its name and addresses, an example, and what could be on."""
    secure = "s" if settings.tls_certificate else ""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"ws{secure}://{host}:{settings.port}"
    own = getattr(settings, offer.port) if offer.port else 0
    places = [f"{url}{path}" for path in offer.paths]
    places += [f"ws{secure}://{host}:{own}"] if own else []
    yield f"{offer.title}: {', '.join(places)}"
    if offer.port and not own:
        yield f"    a port of its own, for clients that take no path, is off: set {offer.port}"
    else:
        http = f"http{secure}://{host}:{settings.port}"
        yield "    " + offer.example.format(url=url, http=http, host=host, port=own)


def option_tables(offer: Offer) -> str:
    """Markdown: every option of `offer`, by what brings it."""
    parts = [
        "\n".join([f"Options of {where}:", "", *HEADING, *table(kind)])
        for where, kind in offer.options
    ]
    return "\n\n".join(parts)
