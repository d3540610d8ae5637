"""Joining: the output of an utterance and those of the stretches it left out, as one, by time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from model.engine.requests import RequestOutput
from model.whisper.alignment import UNSPACED, WordTiming, split_words
from model.whisper.mel import SAMPLE_RATE
from model.whisper.tokens import TokenTable
from model.whisper.uncovered import Stretch


@dataclass(frozen=True, slots=True)
class Insertion:
    """What was decoded of a stretch; times count from the stretch's first sample."""

    stretch: Stretch
    output: RequestOutput


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a joined text; times count from the utterance's first sample."""

    text: str
    tokens: tuple[int, ...]
    language: str
    certain: int
    timed: tuple[WordTiming, ...]


def joined(
    output: RequestOutput, insertions: Sequence[Insertion], table: TokenTable
) -> RequestOutput:
    """`output` with `insertions`, which ascend, between its words.

    Language and its probability are those of `output`; no_speech is the least of all, mean_logprob the mean
    over all tokens; passes and draft tokens are summed.
    """
    if not insertions:
        return output
    pieces = interleaved(output, insertions, table)
    outputs = [output, *(insertion.output for insertion in insertions)]
    counts = [len(one.tokens) for one in outputs]
    ended = output.tokens[-1:] == (table.eot,)
    tokens = tuple(token for piece in pieces for token in piece.tokens)
    won = sum(min(one.stretch.voiced, one.output.covered) for one in insertions)
    lacks_times = any(one.timed is None for one in outputs)
    return replace(
        output,
        text=joined_text(pieces),
        tokens=(*tokens, table.eot) if ended else tokens,
        certain=pieces[0].certain,
        timed=None if lacks_times else tuple(word for piece in pieces for word in piece.timed),
        no_speech=min(one.no_speech for one in outputs),
        mean_logprob=sum(
            one.mean_logprob * count for one, count in zip(outputs, counts, strict=True)
        )
        / sum(counts),
        covered=min(output.voiced, output.covered + won),
        rounds=sum(one.rounds for one in outputs),
        proposed=sum(one.proposed for one in outputs),
        accepted=sum(one.accepted for one in outputs),
        reused=sum(one.reused for one in outputs),
    )


def interleaved(
    output: RequestOutput, insertions: Sequence[Insertion], table: TokenTable
) -> list[Piece]:
    """The texts in order, empty ones left out: the words of `output` up to each stretch, then its text.

    The stretch is the inserted words' alone: the others' times end before it or begin behind it.
    """
    tokens = [token for token in output.tokens if token < table.eot]
    words = [word for word in split_words(tokens, table, output.language) if word[0].strip()]
    starts = [first for _, first, _ in words]
    # A stretch lies between words: up to the first one that begins at its token or behind it.
    at = [sum(first < one.stretch.token for first in starts) for one in insertions]
    bounds = [0, *at, len(words)]
    edges = [0, *([*starts, len(tokens)][n] for n in at), len(tokens)]
    opens = [0.0, *(one.stretch.stop / SAMPLE_RATE for one in insertions)]
    closes = [
        *(one.stretch.start / SAMPLE_RATE for one in insertions),
        len(output.request.audio) / SAMPLE_RATE,
    ]
    pieces: list[Piece] = []
    for n, ((first, stop), (low, high)) in enumerate(
        zip(pairwise(edges), pairwise(bounds), strict=True)
    ):
        text = table.decode(tokens[first:stop]).strip()
        timed = (output.timed or ())[low:high]
        pieces.append(
            Piece(
                text,
                tuple(tokens[first:stop]),
                output.language,
                min(output.certain, len(text)),
                tuple(clipped(word, opens[n], closes[n]) for word in timed),
            )
        )
        if n < len(insertions):
            pieces.append(moved(insertions[n], table))
    return [piece for piece in pieces if piece.tokens]


def moved(insertion: Insertion, table: TokenTable) -> Piece:
    """An insertion as a piece of its utterance."""
    output, start = insertion.output, insertion.stretch.start / SAMPLE_RATE
    return Piece(
        output.text,
        tuple(token for token in output.tokens if token < table.eot),
        output.language,
        output.certain,
        tuple(
            replace(word, start=word.start + start, end=word.end + start)
            for word in output.timed or ()
        ),
    )


def clipped(word: WordTiming, low: float, high: float) -> WordTiming:
    """The word with its times within [low, high]."""
    return replace(word, start=min(max(word.start, low), high), end=min(max(word.end, low), high))


def joined_text(pieces: Sequence[Piece]) -> str:
    """The texts with spaces between, but for two in languages that write none."""
    text, before = "", None
    for piece in (piece for piece in pieces if piece.text):
        spaced = text and not {before, piece.language} <= UNSPACED
        text, before = f"{text}{' ' if spaced else ''}{piece.text}", piece.language
    return text
