"""Words lost and added, and which of them stand beside the places where finals meet.

Texts and words only; nothing here plays or decodes a sound.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import accumulate, pairwise

import jiwer

CONTEXT = 4  # words shown on either side of an error


@dataclass(frozen=True, slots=True)
class Slip:
    """One word lost from the reference, or one that only the hypothesis has.

    kind: "lost" or "added". at: index into the reference's words; an added word stands before it.
    place: index into the hypothesis's words; a lost word is missing before it.
    """

    kind: str
    word: str
    at: int
    place: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """All words of a reference against all words of the pieces of a hypothesis."""

    reference: list[str]
    hypothesis: list[str]
    seams: list[int]  # indices into the hypothesis before which a new piece begins
    slips: list[Slip] = field(default_factory=list)

    @classmethod
    def of(cls, reference: Sequence[str], pieces: Sequence[str]) -> "Alignment":
        """Align normalised texts. Substitutions are neither lost nor added words."""
        wanted = " ".join(reference).split()
        counts = [len(piece.split()) for piece in pieces]
        got = " ".join(pieces).split()
        seams = sorted(set(accumulate(counts)) - {0, len(got)})
        result = cls(wanted, got, seams)
        (chunks,) = jiwer.process_words(" ".join(wanted), " ".join(got)).alignments
        for chunk in chunks:
            if chunk.type == "delete":
                for at in range(chunk.ref_start_idx, chunk.ref_end_idx):
                    result.slips.append(Slip("lost", wanted[at], at, chunk.hyp_start_idx))
            elif chunk.type == "insert":
                for place in range(chunk.hyp_start_idx, chunk.hyp_end_idx):
                    result.slips.append(Slip("added", got[place], chunk.ref_start_idx, place))
        return result

    def at_seams(self) -> list[Slip]:
        """The slips that belong to a run of lost or of added words which touches a seam."""
        seams = set(self.seams)
        result: list[Slip] = []
        for run in self._runs():
            first = run[0].place
            last = run[-1].place + (run[0].kind == "added")
            if seams & set(range(first, last + 1)):
                result += run
        return result

    def _runs(self) -> list[list[Slip]]:
        runs: list[list[Slip]] = []
        for slip in self.slips:
            if runs and _follows(runs[-1][-1], slip):
                runs[-1].append(slip)
            else:
                runs.append([slip])
        return runs

    def has(self, slip: Slip) -> bool:
        """Whether the same word was lost or added here, too, at most one word further on or back.

        For comparing alignments of one reference: of a doubled word either one may count as added.
        """
        return any(
            (mine.kind, mine.word) == (slip.kind, slip.word) and abs(mine.at - slip.at) <= 1
            for mine in self.slips
        )

    def context(self, slip: Slip) -> dict[str, str]:
        """The surroundings of a slip in both texts, with | at the seams."""
        low = max(slip.at - CONTEXT, 0)
        marked = [
            ("| " if place in self.seams else "") + self.hypothesis[place]
            for place in range(
                max(slip.place - CONTEXT, 0), min(slip.place + CONTEXT + 1, len(self.hypothesis))
            )
        ]
        return {
            "kind": slip.kind,
            "word": slip.word,
            "reference": " ".join(self.reference[low : slip.at + CONTEXT + 1]),
            "hypothesis": " ".join(marked),
        }


def retracted(shown: Sequence[str]) -> tuple[int, int]:
    """Of texts that replaced one another on a screen, the last of them final: characters that were
    taken back, and characters that were shown in all. Words alone count: neither case nor marks.
    """
    back = total = 0
    for before, after in pairwise(["", *shown]):
        old, new = (re.findall(r"[\w']+", text.casefold()) for text in (before, after))
        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        kept = sum(len(word) for b in blocks for word in old[b.a : b.a + b.size])
        back += sum(map(len, old)) - kept
        total += sum(map(len, new)) - kept
    return back, total


def _follows(before: Slip, slip: Slip) -> bool:
    """Whether two slips are of one kind and stand side by side."""
    steps = (slip.at - before.at, slip.place - before.place)
    return before.kind == slip.kind and steps == ((1, 0) if slip.kind == "lost" else (0, 1))
