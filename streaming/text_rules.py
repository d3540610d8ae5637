"""Text as people want it: words replaced or hidden, numbers as digits or as words. Pure.

Rules edit a recognised text from left to right. What one edit has taken no other one edits.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from streaming.numbers import Edit, as_digits, as_words, unfinished_from
from streaming.protocol import Final, Word
from streaming.settings import Blocked, Numbers, Settings
from streaming.stable_prefix import IDEOGRAPHS


class TextRules:
    """What to do with a text.

    replacements: what is heard → what is written, nothing perhaps; in any case. blocklist: words and phrases to hide;
    `*` at the end of one stands for any ending. blocked: whether those are masked or dropped.
    numbers: as Whisper writes them, as digits, or as words.
    """

    def __init__(
        self,
        replacements: Mapping[str, str],
        blocklist: Sequence[str],
        blocked: Blocked = "mask",
        numbers: Numbers = "as_is",
    ) -> None:
        self._written = {_spaced(heard): written for heard, written in replacements.items()}
        self._drops = blocked == "drop"
        self._numbers = numbers
        hidden = [_spaced(phrase) for phrase in blocklist]
        self._hidden = _any_of(hidden)
        self._replaced = _any_of(self._written)
        begun = {
            phrase[: space.start()]
            for phrase in (*self._written, *hidden)
            for space in re.finditer(rf" |(?<=[{IDEOGRAPHS}])(?!$)", phrase)
        }
        self._begun = re.compile(rf"(?:{_any_of(begun).pattern})\W*$", re.IGNORECASE)

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        phrases = self._hidden.pattern + self._replaced.pattern
        return self._numbers != "as_is" or phrases != 2 * NOTHING

    def edits(self, text: str, language: str) -> list[Edit]:
        """The edits to `text`, in order and apart from each other. language: its code."""
        made: list[Edit] = []
        for pattern in (self._hidden, self._replaced):
            made += self._phrases(text, pattern, made)
        found = as_digits if self._numbers == "digits" else as_words
        if self._numbers != "as_is":
            made += [edit for edit in found(text, language) if _free(edit, made)]
        return sorted(made, key=lambda edit: edit.start)

    def settled(self, text: str, language: str) -> int:
        """How many characters of `text` no edit will take that more text might bring about."""
        begun = self._begun.search(text)
        place = begun.start() if begun else len(text)
        if self._numbers == "digits":
            place = min(place, unfinished_from(text, language))
        return len(text[:place].rstrip())

    def _phrases(self, text: str, pattern: re.Pattern[str], taken: Sequence[Edit]) -> list[Edit]:
        edits = []
        for found in pattern.finditer(text):
            if pattern is self._replaced:
                new = self._replacement(found.group())
            else:
                new = "" if self._drops else _masked(found.group())
            edit = Edit(found.start(), found.end(), new)
            edit = edit if new else _without_the_space(text, edit)
            if _free(edit, taken):
                edits.append(edit)
        return edits

    def _replacement(self, heard: str) -> str:
        """As it is to be written; with a capital where a sentence began with one."""
        written = self._written.get(_spaced(heard), heard)
        capital = heard[:1].isupper() and not heard.isupper() and written.islower()
        return written[:1].upper() + written[1:] if capital else written


def rules_of(settings: Settings) -> TextRules | None:
    """The rules that `settings` name, if any."""
    rules = TextRules(settings.replacements, settings.blocklist, settings.blocked, settings.numbers)
    return rules or None


NOTHING = r"(?!)"  # matches nowhere


def _spaced(phrase: str) -> str:
    """The phrase as it is looked up: without case, one space between words, the plain apostrophe."""
    return " ".join(phrase.lower().replace("\u2019", "'").split())


def _any_of(phrases: Iterable[str]) -> re.Pattern[str]:
    """Matches one of `phrases`, whole words, the longest first."""
    parts = []
    for phrase in sorted(phrases, key=len, reverse=True):
        if not (bare := phrase.removesuffix("*").strip()):
            continue
        body = re.escape(bare).replace(r"\ ", r"\s+").replace("'", "['\u2019]")
        spaced = rf"[^\W{IDEOGRAPHS}]"  # what is part of a longer word beside another of its kind
        before = rf"(?<!{spaced})" if re.match(spaced, bare) else ""
        after = rf"(?!{spaced})" if re.search(rf"{spaced}$", bare) else ""
        parts.append(before + body + (r"\w*" if bare != phrase else after))
    return re.compile("|".join(parts) or NOTHING, re.IGNORECASE)


def _free(edit: Edit, taken: Sequence[Edit]) -> bool:
    return all(edit.stop <= other.start or other.stop <= edit.start for other in taken)


def _masked(word: str) -> str:
    """The first letter and stars, however many words it is."""
    first = re.search(r"\w", word)
    place = first.end() if first and len(word) > 1 else 0
    return word[:place] + re.sub(r"\w", "*", word[place:])


def _without_the_space(text: str, edit: Edit) -> Edit:
    """The word goes with the space before it, at the beginning with the marks and the space behind."""
    before = text[: edit.start].rstrip()
    if before:
        return Edit(len(before), edit.stop, "")
    behind = re.compile(r"[^\w\s]*\s*").match(text, edit.stop)
    return Edit(edit.start, behind.end() if behind else edit.stop, "")


def written(text: str, edits: Sequence[Edit], start: int = 0, stop: int | None = None) -> str:
    """[start, stop) of `text` with those of `edits` that lie in it."""
    stop = len(text) if stop is None else stop
    parts, place = [], start
    for edit in edits:
        if start <= edit.start and edit.stop <= stop:
            parts += [text[place : edit.start], edit.text]
            place = edit.stop
    return "".join([*parts, text[place:stop]])


class WrittenText:
    """An utterance's text by the rules. What was called stable of it never changes.

    The recogniser's stable words never change, so an edit to them, once it is final, does not either;
    the words behind are edited anew each time, as if they stood alone.
    """

    def __init__(self) -> None:
        self._edits: list[Edit] = []  # to the settled characters
        self._settled = 0

    def partial(self, rules: TextRules, text: str, stable: int, language: str) -> tuple[str, int]:
        """`text` by the rules, and how many characters of that are stable. stable: of `text`."""
        settled = rules.settled(text[:stable], language)
        if settled > self._settled:
            self._edits += self._behind(rules, text[:settled], language)
            self._settled = settled
        edits = self._edits + self._behind(rules, text, language)
        return written(text, edits), len(written(text, self._edits, 0, self._settled))

    def final(self, rules: TextRules, message: Final, *, commits: bool) -> Final:
        """`message` by the rules. commits: whether its text begins with the stable words."""
        if commits:
            edits = self._edits + self._behind(rules, message.text, message.language)
        else:
            edits = rules.edits(message.text, message.language)
        words = None if message.words is None else _timed(message.words, message.text, edits)
        return replace(message, text=written(message.text, edits), raw=message.text, words=words)

    def _behind(self, rules: TextRules, text: str, language: str) -> list[Edit]:
        place = self._settled
        return [
            Edit(place + edit.start, place + edit.stop, edit.text)
            for edit in rules.edits(text[place:], language)
        ]


def _timed(words: Sequence[Word], text: str, edits: Sequence[Edit]) -> list[Word]:
    """The words of the edited text: those that an edit brought share the time of those it took."""
    spans: list[tuple[int, int]] = []
    for word in words:
        start = text.find(word.text, spans[-1][1] if spans else 0)
        if start < 0:
            return []
        spans.append((start, start + len(word.text)))
    result: list[Word] = []
    for first, stop in _groups(spans, edits):
        given = words[first:stop]
        edge = spans[first][0], spans[stop - 1][1]
        mine = [one for one in edits if one.start < edge[1] and edge[0] < one.stop]
        start = min([edge[0], *(one.start for one in mine)])
        end = max([edge[1], *(one.stop for one in mine)])
        shown = written(text, mine, start, end).split()
        if [word.text for word in given] == shown:
            result += given
            continue
        times = [given[0].start, *(word.start for word in given[1:]), given[-1].end]
        if len(shown) != len(given):
            length = (times[-1] - times[0]) / max(len(shown), 1)
            times = [round(times[0] + length * n, 3) for n in range(len(shown))] + times[-1:]
        mean = round(sum(word.probability for word in given) / len(given), 4)
        result += [
            Word(text=one, start=a, end=b, probability=mean)
            for one, (a, b) in zip(shown, pairwise(times), strict=True)
        ]
    return result


def _groups(spans: Sequence[tuple[int, int]], edits: Sequence[Edit]) -> Iterator[tuple[int, int]]:
    """Words as [first, stop) that no edit divides."""
    first = 0
    for index in range(1, len(spans) + 1):
        if index == len(spans) or not any(
            _joins(edit, spans[index - 1], spans[index]) for edit in edits
        ):
            yield first, index
            first = index


def _joins(edit: Edit, before: tuple[int, int], word: tuple[int, int]) -> bool:
    """Whether `edit` takes of both words, or leaves marks of the second one to the first."""
    leaves_marks = not edit.text and edit.start == before[1] and edit.stop < word[1]
    return (edit.start < before[1] or leaves_marks) and word[0] < edit.stop
