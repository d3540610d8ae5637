"""Writes the tables of options into docs/protocols.md, between the marks that it finds there.

python -m tests.support.make_protocol_tables
"""

from pathlib import Path

from daemon.protocols import option_tables
from streaming.dialects.offers import OFFERS

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "protocols.md"


def renewed(text: str) -> str:
    """The page with its tables as the code has them."""
    for offer in filter(lambda offer: offer.options, OFFERS):
        before, begin, rest = text.partition(f"<!-- options of {offer.title} -->\n")
        _, end, after = rest.partition("<!-- end of options -->")
        assert begin, f"{PAGE.name} has no place for the options of {offer.title}"
        assert end, f"{PAGE.name} has no end of the options of {offer.title}"
        text = f"{before}{begin}{option_tables(offer)}\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
