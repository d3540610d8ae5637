"""Numbers in text, found and written as digits or as words. Pure.

text2num reads number words, num2words writes them; both know some of Whisper's languages, and text in
another one stays as it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from num2words import CONVERTER_CLASSES, num2words
from text_to_num import find_numbers, text2num

READ = frozenset({"en", "fr", "es", "pt", "de", "it", "nl", "da"})  # languages that text2num knows
CURRENCIES = {"$": "USD", "€": "EUR", "£": "GBP"}
YEARS = range(1100, 2100)  # a number of four digits without a comma is read as a year

_TOKEN = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*|\s+|\S")
_SENTENCE_START = re.compile(r"(?:^|[.!?]\s+)$")
# Digits that belong to a time, a telephone number or a name stay as they are.
_NUMBER = re.compile(
    r"(?<![\w.,:/#-])(?P<sign>[$€£]?)(?P<whole>\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.(?P<part>\d{1,6}))?"
    r"(?P<ordinal>st|nd|rd|th)?(?![\w$€£]|[.,:/-]\d)"
)


@dataclass(frozen=True, slots=True)
class Edit:
    """`text` in place of the characters [start, stop)."""

    start: int
    stop: int
    text: str


@dataclass(frozen=True, slots=True)
class _Word:
    """What text2num calls a token."""

    word: str

    def text(self) -> str:
        return self.word

    def nt_separated(self, _before: "_Word") -> bool:
        return False

    def not_a_number_part(self) -> bool:
        return False


def as_digits(text: str, language: str) -> Iterator[Edit]:
    """Number words as digits. One, two and three alone stay words: "one of them"."""
    if language not in READ:
        return
    tokens = list(_TOKEN.finditer(text))
    for found in find_numbers([_Word(token.group().lower()) for token in tokens], language):
        yield Edit(tokens[found.start].start(), tokens[found.end - 1].end(), found.text)


def unfinished_from(text: str, language: str) -> int:
    """Where number words begin at the end of `text` that more of them might continue; else its length.

    One word between them, such as "and" or "point", may belong to the number.
    """
    place = len(text)
    if language not in READ:
        return place
    words = [token for token in _TOKEN.finditer(text) if token.group()[0].isalnum()]
    skipped = False
    for token in reversed(words):
        if _is_number(token.group().lower(), language):
            place, skipped = token.start(), False
        elif skipped:
            break
        else:
            skipped = True
    return place


def _is_number(word: str, language: str) -> bool:
    try:
        text2num(word, language)
    except ValueError:
        return False
    return True


def as_words(text: str, language: str) -> Iterator[Edit]:
    """Digits as number words; times, telephone numbers and names such as B12 stay."""
    if language not in CONVERTER_CLASSES:
        return
    for found in _NUMBER.finditer(text):
        spoken = _spoken(found, language)
        if spoken is not None:
            begins = _SENTENCE_START.search(text, endpos=found.start())
            spoken = spoken[:1].upper() + spoken[1:] if begins else spoken
            yield Edit(found.start(), found.end(), spoken)


def _spoken(found: re.Match[str], language: str) -> str | None:
    sign, whole, part = found["sign"], found["whole"], found["part"]
    digits = whole.replace(",", "")
    number = f"{digits}.{part}" if part else digits
    if found["ordinal"] and (language != "en" or sign or part):
        return None
    try:
        if sign:
            said = num2words(number, lang=language, to="currency", currency=CURRENCIES[sign])
            return str(said).removesuffix(", zero cents").removesuffix(", zero pence")
        if found["ordinal"]:
            return str(num2words(int(digits), lang=language, to="ordinal"))
        if language == "en" and digits == whole and len(whole) == 4 and int(whole) in YEARS:
            return str(num2words(int(whole), lang=language, to="year")) if not part else None
        return str(num2words(number, lang=language))
    except (NotImplementedError, OverflowError, ValueError):  # a language without currencies, say
        return None
