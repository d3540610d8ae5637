"""Writes the tables of options into docs/protocols.md, between the marks that it finds there.

python -m tests.support.make_protocol_tables
"""

import re
from pathlib import Path

from daemon.protocols import option_tables
from streaming.dialects.offers import OFFERS

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "protocols.md"


def renewed(text: str) -> str:
    """The page with its tables as the code has them."""
    for offer in filter(lambda offer: offer.options, OFFERS):
        begin, end = f"<!-- options of {offer.title} -->", "<!-- end of options -->"
        text, count = re.subn(
            rf"({re.escape(begin)}\n).*?({re.escape(end)})",
            lambda found, offer=offer: f"{found[1]}{option_tables(offer)}\n{found[2]}",
            text,
            flags=re.DOTALL,
        )
        assert count == 1, f"{PAGE.name} has no place for the options of {offer.title}"
    return text


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
