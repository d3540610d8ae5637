"""Utterances: when a partial of the open one is due, its newest hypothesis, and what came before it.

Counts samples; knows no audio and no detector.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streaming.configuration import Configuration
from streaming.hypothesis import Hypothesis
from streaming.languages import Asked
from streaming.protocol import SAMPLE_RATE, Start
from streaming.segmenter import Began, Ended, Moved, Paused
from streaming.speech_spans import Spans
from streaming.stable_prefix import StablePrefix
from streaming.text_rules import WrittenText

# A partial of a long utterance costs more and changes less: one is due for each tenth of its length.
NEW_SHARE = 10

DEFAULT_OPTIONS = Start()
# Whisper misses or mishears a word that its audio begins with: "Stop." becomes "Thank you."
LEAD = 300 * SAMPLE_RATE // 1_000
# Endpoint silences within which people go on with a sentence. The text before is taken for its beginning, but
# where the language is to be detected: a text in another one leads Whisper astray.
ONE_SENTENCE = 3
LONGEST = 30 * SAMPLE_RATE  # samples: Whisper's window


@dataclass(frozen=True, slots=True, eq=False)
class Decode:
    """Work for the recogniser: one span of one utterance.

    utterance: 0, 1, 2 … within the session.
    start, stop: sample indices at 16 kHz in session time; stop is exclusive, at most 30 s on.
    audio: a copy of the span, [stop - start], 16 kHz mono in [-1, 1].
    lead: samples of silence to put in front of it, where its speech begins too soon.
    final: whether the utterance has ended; else the work may be superseded.
    early: silence has begun; if it lasts, the final has the same span.
    voiced: samples from its first speech to its last.
    language: a code, several to choose from, or None to detect. language_hint: as of `Request`.
    prefix: words that its text must begin with; the client was promised them.
    speech: its voiced frames, in samples from `start` on, which a final's text accounts for; a partial
        has none.
    before: what the utterance before says, where the two were one but for their length.
    options: what was asked for this utterance; its `language` is the one above.
    """

    utterance: int
    start: int
    stop: int
    audio: NDArray[np.float32]
    final: bool
    early: bool = False
    lead: int = 0
    voiced: int = 0
    language: Asked = None
    language_hint: str | None = None
    prefix: str = ""
    speech: Spans = ()
    before: str = ""
    options: Start = DEFAULT_OPTIONS


@dataclass(slots=True)
class Said:
    """What the final of an utterance says, as far as it is fit to go on with; None: it has not come."""

    text: str | None = None


@dataclass(slots=True)
class Utterance:
    """An open utterance. All positions are sample indices in session time."""

    number: int
    start: int
    onset: int  # start of its first speech
    due: int  # a partial is due when this much has come
    given: int  # end of the last decode given out
    configuration: Configuration
    before: Said = field(default_factory=lambda: Said(""))  # the text that this one goes on with
    said: Said = field(default_factory=Said)
    stop: int = -1  # its end
    paused: int = -1  # its end, if the silence lasts; -1 once speech goes on
    shown: int = -1  # end of the newest accepted partial's span
    language: str | None = None  # of the newest plausible partial
    early: tuple[Decode, Hypothesis] | None = None  # the final, if the utterance ends where it does
    caption: StablePrefix = field(default_factory=StablePrefix)
    written: WrittenText = field(default_factory=WrittenText)  # of the caption, by the rules

    def lead(self, length: int) -> int:
        """Samples of silence that belong in front of its first `length` samples: LEAD before its speech."""
        return max(min(LEAD - (self.onset - self.start), LONGEST - length), 0)

    def note_speech(self, speech_end: int, voiced: int, interval: int) -> None:
        """Speech has come up to `speech_end`: a partial is due after enough that is new."""
        if speech_end - self.due >= max(interval, voiced // NEW_SHARE):
            self.due = speech_end

    def take_due(self) -> int | None:
        """Where the next decode ends, if one is due and not taken: an early final once paused, else a partial."""
        stop = self.paused if self.paused >= 0 else self.due
        held = self.before.text is None and self.paused >= 0  # a final needs the text before
        if stop <= self.given or held:
            return None
        self.given = stop
        return stop

    def final_at(self, stop: int) -> tuple[Decode, Hypothesis] | None:
        """The early final, if the utterance ends at `stop` and it has that span."""
        return self.early if self.early is not None and self.early[0].stop == stop else None


class Utterances:
    """A session's, in order: the one that is open, and what the one before it says."""

    def __init__(self) -> None:
        self.open: Utterance | None = None
        self.begun = 0
        self._latest: tuple[Said, Configuration] | None = None  # of the one that ended last

    def begin(self, began: Began, asked: Configuration) -> Utterance:
        """Open the next one, which is decoded as `asked`."""
        at = began.start
        self.open = Utterance(
            self.begun, start=at, onset=began.onset, due=at, given=at, configuration=asked
        )
        self.begun += 1
        near = began.silence < (1 if asked.languages.fixed is None else ONE_SENTENCE)
        if near and self._latest is not None and self._latest[1] is asked:
            self.open.before = self._latest[0]
        return self.open

    def note(self, event: Paused | Moved, now: int) -> None:
        """Silence has begun in the open one, or it begins only later: what it said until `now` others said.

        Words that were promised stay promised.
        """
        one = self.open
        assert one is not None
        if isinstance(event, Paused):
            one.paused = event.stop
            return
        one.start, one.onset, one.shown = event.start, event.onset, now
        one.before = Said("")
        one.early = one.language = None
        if one.configuration.options.stability != "commit":
            one.caption = StablePrefix()

    def end(self, ended: Ended) -> Utterance:
        """Close the open one, which stays as it is but for its end."""
        utterance = self.open
        assert utterance is not None
        utterance.stop = ended.stop
        self.open, self._latest = None, (utterance.said, utterance.configuration)
        return utterance
