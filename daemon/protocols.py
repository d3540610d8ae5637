"""The verb `protocols`: which wire protocols the daemon speaks, where, and a line of a client's code for each."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec import Struct

from daemon import config
from streaming.dialects import deepgram_rest, openai_rest, wyoming
from streaming.dialects.offers import OFFERS, Offer
from streaming.dialects.options import table

SUMMARY = "list the protocols that the daemon speaks, and where"


@dataclass(frozen=True, slots=True)
class Further:
    """What is spoken beside websockets. place: where; {http} is the daemon's address, {own} the value of `key`.

    key: of the configuration, that turns it on; "" where it is always on. options: by what brings them.
    """

    title: str
    place: str
    example: str
    options: tuple[tuple[str, type[Struct]], ...]
    key: str = ""


FURTHER = (
    Further(
        "OpenAI files",
        "{http}/v1/audio/transcriptions, {http}/v1/audio/translations, {http}/v1/models",
        'OpenAI(base_url="{http}/v1").audio.transcriptions.create(file=file, model="whisper-1")',
        (("the form", openai_rest.Options),),
    ),
    Further(
        "Deepgram files",
        "{http}/v1/listen",
        'DeepgramClient(environment=DeepgramClientEnvironment(base="{http}", …))',
        (("the URL", deepgram_rest.Options),),
    ),
    Further(
        "Wyoming",
        "{own}",
        'AsyncClient.from_uri("{own}")',
        (
            ("transcribe", wyoming.Transcribe),
            ("audio-start and audio-chunk", wyoming.AudioFormat),
        ),
        key="wyoming",
    ),
)

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
    for further in FURTHER:
        sys.stdout.write("\n".join(further_entry(further, settings)) + "\n")
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


def further_entry(further: Further, settings: config.Config) -> Iterator[str]:
    """The lines of what is no websocket."""
    secure = "s" if settings.tls_certificate else ""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    about = {"http": f"http{secure}://{host}:{settings.port}"}
    own = getattr(settings, further.key) if further.key else ""
    if further.key and not own:
        yield f"{further.title}:"
        yield f"    is off: set {further.key}"
    else:
        yield f"{further.title}: {further.place.format(**about, own=own)}"
        yield f"    {further.example.format(**about, own=own)}"


def option_tables(options: Iterable[tuple[str, type[Struct]]]) -> str:
    """Markdown: every option, by what brings it."""
    parts = [
        "\n".join([f"Options of {where}:", "", *HEADING, *table(kind)]) for where, kind in options
    ]
    return "\n\n".join(parts)
