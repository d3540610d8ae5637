"""Writes the tables of options into docs/protocols.md, between the marks that it finds there.

python -m tests.support.make_protocol_tables
"""

from pathlib import Path

from daemon.protocols import FURTHER, option_tables
from streaming.dialects.offers import OFFERS

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "protocols.md"


def renewed(text: str) -> str:
    """The page with its tables as the code has them."""
    kinds = {one.title: one.options for one in OFFERS} | {one.title: one.options for one in FURTHER}
    for title, options in kinds.items():
        if not options:
            continue
        before, begin, rest = text.partition(f"<!-- options of {title} -->\n")
        _, end, after = rest.partition("<!-- end of options -->")
        assert begin, f"{PAGE.name} has no place for the options of {title}"
        assert end, f"{PAGE.name} has no end of the options of {title}"
        text = f"{before}{begin}{option_tables(options)}\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
