"""Excerpts of prose: consecutive sentences that last 3 … 28 s when read aloud.

An excerpt never spans a chapter's end, a book's, or a sentence that was left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CHARACTERS_PER_S = 14.5  # English read at an ordinary tempo, pauses included
SHORTEST_S, LONGEST_S = 3.0, 28.0
# Aims lie a little inside the bounds, so that the nearest end of a sentence lies inside, too. Read at
# various tempos, 70 % of such excerpts last 15 s and more.
_LONG_SHARE = 0.77
_LONG_AIMS = (17.0, 27.0)
_SHORT_AIMS = (4.0, 14.0)

_HEADER = re.compile(r"\*\*\* ?START OF .*?\*\*\*|\*END\*THE SMALL PRINT.*?\*END\*", re.DOTALL)
_FOOTER = re.compile(r"\*\*\* ?END OF |^End of (?:the )?Project Gutenberg", re.MULTILINE)
_CREDIT = re.compile(r"produced by|project gutenberg|transcribe[rd]|html version", re.IGNORECASE)
_NUMBER = r"(?:[IVXLC]+|\d+)\.?"
_HEADING_CHARACTERS = 80
_NUMBERED = re.compile(
    rf"{_NUMBER}|(?:chapter|book|part|act|scene|volume|letter|stave)\b[ .]*"
    rf"(?:{_NUMBER}|(?:the )?[a-z-]+)(?:$|[.:—-].*)",
    re.IGNORECASE,
)
_TITLE = re.compile(r"[^a-z]*[A-Z][^a-z]*[^a-z.!?\"')]")
_PLAIN = str.maketrans(
    {
        "\u2018": "'",  # quotation marks, single and double
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "—",
        "\u2026": "...",
        "_": None,
    }
)
_DASH = re.compile(r"\s*—+\s*|\s*--+\s*|\s+-\s+")
_SHOUTED = re.compile(r"\b[A-Z]{2,}\b")
_OPENING = re.compile(r"^[\"'(]*[a-z]")
_ROMAN = re.compile(r"[IVXLC]+")
_SPEAKABLE = re.compile(r"[A-Za-zÀ-ÖØ-öø-ÿŒœ0-9 .,;:!?'\"()—£$&-]+")
_END = re.compile(r"[.!?]+[\"')]*\s+(?=[\"'(]*[A-Z0-9])")
_CLAUSE = re.compile(r"(?<=[,;:])\s+")
_ABBREVIATED = re.compile(
    r"(?:^|[\s\"'(])(?:Mr|Mrs|Ms|Dr|St|Messrs|Mme|Mlle|Rev|Hon|Prof|Col|Capt|Gen|Lieut|Sergt|Esq|"
    r"No|Vol|vol|p|pp|etc|viz|[A-Z])\.$"
)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Consecutive sentences of one book."""

    text: str
    book: str  # its file's name


def read_excerpts(texts: Iterable[Path], seed: int) -> list[Excerpt]:
    """Every excerpt of those books, in order; a function of texts and seed.

    A book is UTF-8 text with a paragraph a line, or paragraphs separated by blank lines. Licence headers,
    headings and sentences that cannot be read aloud are left out. Raises OSError, and ValueError for
    other files.
    """
    rng = np.random.default_rng(seed)
    return [
        Excerpt(text, path.name)
        for path in texts
        for stretch in stretches(_book(path))
        for text in pack(stretch, rng)
    ]


def stretches(book: str) -> Iterator[list[str]]:
    """Runs of consecutive sentences, in order; a heading or a sentence left out ends a run."""
    run: list[str] = []
    for paragraph in _paragraphs(book):
        found = [] if _is_heading(paragraph) else list(_sentences(_plain(paragraph)))
        for sentence in found or [""]:
            if _SPEAKABLE.fullmatch(sentence) and any(map(str.isalpha, sentence)):
                run.append(sentence)
            elif run:
                yield run
                run = []
    if run:
        yield run


def pack(sentences: Sequence[str], rng: np.random.Generator) -> Iterator[str]:
    """Join consecutive sentences into excerpts of SHORTEST_S … LONGEST_S, read at ordinary tempo.

    A sentence too long for one excerpt is split into clauses. Clauses that are too long are left out, and
    texts shorter than SHORTEST_S to which the next clause does not fit.
    """
    excerpt, aim = "", _aim(rng)
    for part in (part for sentence in sentences for part in _parts(sentence)):
        longer = f"{excerpt} {part}".lstrip()
        grows = abs(seconds(longer) - aim) <= abs(seconds(excerpt) - aim)
        if seconds(longer) <= LONGEST_S and (grows or seconds(excerpt) < SHORTEST_S):
            excerpt = longer
            continue
        if seconds(excerpt) >= SHORTEST_S:
            yield excerpt
            aim = _aim(rng)
        excerpt = part if seconds(part) <= LONGEST_S else ""
    if seconds(excerpt) >= SHORTEST_S:
        yield excerpt


def seconds(text: str) -> float:
    """Estimated duration of `text`, read aloud at an ordinary tempo."""
    return len(text) / CHARACTERS_PER_S


def _book(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 ({error}): convert it") from None


def _aim(rng: np.random.Generator) -> float:
    return float(rng.uniform(*(_LONG_AIMS if rng.random() < _LONG_SHARE else _SHORT_AIMS)))


def _paragraphs(book: str) -> list[str]:
    """The paragraphs between licence header and footer."""
    if header := _HEADER.search(book):
        book = book[header.end() :]
    if footer := _FOOTER.search(book):
        book = book[: footer.start()]
    wrapped = re.search(r"\n[ \t]*\n", book.strip())
    blocks = re.split(r"\n[ \t]*\n", book) if wrapped else book.splitlines()
    return [" ".join(block.split()) for block in blocks if block.strip()]


def _is_heading(paragraph: str) -> bool:
    return len(paragraph) < _HEADING_CHARACTERS and bool(
        _NUMBERED.fullmatch(paragraph) or _TITLE.fullmatch(paragraph) or _CREDIT.search(paragraph)
    )


def _plain(text: str) -> str:
    """One spelling of quotes and dashes, no underscores for emphasis."""
    return _DASH.sub("—", text.translate(_PLAIN))


def _unshouted(sentence: str) -> str:
    """Words in capitals, put in small letters; Roman numerals stay."""
    quiet = _SHOUTED.sub(
        lambda word: word[0] if _ROMAN.fullmatch(word[0]) else word[0].lower(), sentence
    )
    return _OPENING.sub(lambda letter: letter[0].upper(), quiet, count=1)


def _sentences(paragraph: str) -> Iterator[str]:
    """Cut after . ! ? before a capital, but not after an abbreviation or an initial."""
    start = 0
    for end in _END.finditer(paragraph):
        so_far = paragraph[start : end.end()].rstrip()
        if not _ABBREVIATED.search(so_far):
            yield _unshouted(so_far)
            start = end.end()
    yield _unshouted(paragraph[start:])


def _parts(sentence: str) -> Sequence[str]:
    return _CLAUSE.split(sentence) if seconds(sentence) > LONGEST_S else (sentence,)
