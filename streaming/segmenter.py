"""Frames judged speech or not in, utterances out: where each begins, ends and is cut.

Counts samples and judges no sound: the same frames and judgements give the same utterances, however
they arrived. It knows no text, no message and no wall clock.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from streaming.protocol import SAMPLE_RATE
from streaming.ring_buffer import AudioRingBuffer
from streaming.settings import Settings
from streaming.speech_spans import Spans, SpeechSpans

SMOOTHING = 150 * SAMPLE_RATE // 1_000  # the window in which the quietest point is sought
# Detectors adapt to the first sound: they may miss a word that is cut off in front and stands alone
# between two flushes. So a clip as short as this is an utterance anyway, if some of it is louder than a
# quiet room (-46 dBFS).
CLIP = 2 * SAMPLE_RATE
AUDIBLE = 5e-3
LOUDNESS = 30 * SAMPLE_RATE // 1_000  # the window of which the loudest counts


@dataclass(frozen=True, slots=True)
class Began:
    """An utterance began at sample `start`, its pre-roll included, with speech from `onset` on.

    silence: behind the speech of the one before, in endpoint silences: below 1 length alone has ended
        that one; infinite where there is none, or where the client parted the two.
    """

    start: int
    onset: int
    silence: float = math.inf


@dataclass(frozen=True, slots=True)
class Paused:
    """Silence has followed the open utterance for the post-roll: should it last, `stop` is its end."""

    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """The utterance [start, stop) ended; `audio` is a copy of it, [stop - start] at 16 kHz.

    voiced: samples from its first speech to its last, pauses between included. speech: its voiced
    frames, in samples from `start` on.
    """

    start: int
    stop: int
    voiced: int
    audio: NDArray[np.float32]
    speech: Spans = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """The open utterance begins only at `start`, with speech from `onset` on: before that others talked behind."""

    start: int
    onset: int


SegmenterEvent = Began | Paused | Moved | Ended


class SegmenterState(Enum):
    """What the last frames held."""

    SILENCE = auto()  # no utterance
    BURST = auto()  # speech, too short yet to open an utterance
    SPEECH = auto()  # an utterance is open and its last frame was speech
    PAUSE = auto()  # an utterance is open and its last frame was not


class Signal(Enum):
    """What moves the state: a frame's judgement, or a count of samples reached."""

    QUIET = auto()
    VOICE = auto()
    ENOUGH = auto()  # the burst has reached minimum_speech
    SETTLED = auto()  # the pause has reached the post-roll
    ROSE = auto()  # someone speaks up in front of others
    EXPIRED = auto()  # the pause has reached endpoint_silence
    FULL = auto()  # the next frame would exceed the cap
    FLUSH = auto()  # the client ends the utterance
    CLIP = auto()  # ... and all that came since it last did so is a short clip


class Act(Enum):
    """What the segmenter does on a step."""

    BEGIN = auto()
    PAUSE = auto()
    END = auto()
    CUT = auto()
    MOVE = auto()
    CLIP = auto()


# An absent pair is a fault of the segmenter. A flush takes a short burst for an utterance: the client
# cut its end off, so it may be the beginning of a word.
STEPS: dict[tuple[SegmenterState, Signal], tuple[SegmenterState, tuple[Act, ...]]] = {
    (SegmenterState.SILENCE, Signal.QUIET): (SegmenterState.SILENCE, ()),
    (SegmenterState.SILENCE, Signal.VOICE): (SegmenterState.BURST, ()),
    (SegmenterState.SILENCE, Signal.FLUSH): (SegmenterState.SILENCE, ()),
    (SegmenterState.SILENCE, Signal.CLIP): (SegmenterState.SILENCE, (Act.CLIP,)),
    (SegmenterState.BURST, Signal.QUIET): (SegmenterState.SILENCE, ()),
    (SegmenterState.BURST, Signal.VOICE): (SegmenterState.BURST, ()),
    (SegmenterState.BURST, Signal.ENOUGH): (SegmenterState.SPEECH, (Act.BEGIN,)),
    (SegmenterState.BURST, Signal.FLUSH): (SegmenterState.SILENCE, (Act.BEGIN, Act.END)),
    (SegmenterState.SPEECH, Signal.QUIET): (SegmenterState.PAUSE, ()),
    (SegmenterState.SPEECH, Signal.VOICE): (SegmenterState.SPEECH, ()),
    (SegmenterState.SPEECH, Signal.ROSE): (SegmenterState.SPEECH, (Act.MOVE,)),
    (SegmenterState.SPEECH, Signal.FULL): (SegmenterState.SPEECH, (Act.CUT,)),
    (SegmenterState.SPEECH, Signal.FLUSH): (SegmenterState.SILENCE, (Act.END,)),
    (SegmenterState.PAUSE, Signal.QUIET): (SegmenterState.PAUSE, ()),
    (SegmenterState.PAUSE, Signal.VOICE): (SegmenterState.SPEECH, ()),
    (SegmenterState.PAUSE, Signal.SETTLED): (SegmenterState.PAUSE, (Act.PAUSE,)),
    (SegmenterState.PAUSE, Signal.EXPIRED): (SegmenterState.SILENCE, (Act.END,)),
    (SegmenterState.PAUSE, Signal.FULL): (SegmenterState.SILENCE, (Act.END,)),
    (SegmenterState.PAUSE, Signal.FLUSH): (SegmenterState.SILENCE, (Act.END,)),
}


class Segmenter:
    """One stream's frames to utterances that are in order, never overlap and never exceed the cap.

    Every burst of at least minimum_speech lies in exactly one utterance, or, when the cap cuts it,
    in several that meet sample to sample. Memory is bounded by the cap.
    """

    def __init__(self, settings: Settings, frame: int) -> None:
        def samples(ms: int) -> int:
            return ms * SAMPLE_RATE // 1_000

        self._minimum = samples(settings.minimum_speech_ms)
        self._pre_roll = samples(settings.pre_roll_ms)
        self._post_roll = samples(settings.post_roll_ms)
        self._endpoint = samples(settings.endpoint_silence_ms)
        self._cap = samples(settings.cap_ms)
        self._cut_search = samples(settings.cut_search_ms)
        # The capacity: an utterance up to its cap, and the audio kept before its first speech.
        before = max(CLIP, self._pre_roll) + self._minimum
        self.buffer = AudioRingBuffer(self._cap + before + frame)
        self._spans = SpeechSpans()
        self._state = SegmenterState.SILENCE
        self._burst = 0  # start of the newest burst
        self._speech_end = 0  # end of the last frame of speech
        self._done = 0  # end of the last utterance: the next begins no earlier
        self._spoken = -self._endpoint  # end of its speech
        self._flushed = 0  # place of the last flush
        self._parted = 0  # place of the client's last flush or pause
        self._start: int | None = None
        self._onset = 0
        self._gaps = 0  # samples between utterances
        self._in_utterances = 0  # samples in ended utterances
        self._acts: dict[Act, Callable[[], list[SegmenterEvent]]] = {
            Act.BEGIN: self._begin,
            Act.PAUSE: self._pause,
            Act.END: self._end,
            Act.CUT: self._cut,
            Act.MOVE: self._move,
            Act.CLIP: self._clip,
        }

    @property
    def position(self) -> int:
        """Samples taken so far: session time."""
        return self.buffer.stop

    @property
    def speech_end(self) -> int:
        """The end of the last speech."""
        return self._speech_end

    @property
    def onset(self) -> int:
        """The start of the open utterance's first speech, or the cut before it."""
        return self._onset

    @property
    def speech(self) -> int:
        """Samples in ended utterances."""
        return self._in_utterances

    @property
    def silence(self) -> int:
        """Samples in no utterance, counted once no utterance is open."""
        return self._gaps + (0 if self._start is not None else self.position - self._done)

    def audio(self, start: int, stop: int) -> NDArray[np.float32]:
        """A copy of a range of the open utterance: [stop - start]."""
        return self.buffer.read(start, stop)

    def spans(self, start: int, stop: int) -> Spans:
        """The voiced frames of a range of the open utterance, in samples from `start` on."""
        return self._spans.within(start, stop)

    def push(
        self, frame: NDArray[np.float32], *, speech: bool, crowd: int = 0
    ) -> list[SegmenterEvent]:
        """Take the next frame and its judgement. crowd: of `streaming.foreground`."""
        events = self._append(frame)
        if speech:
            if self._state is SegmenterState.SILENCE:
                self._burst = self.position - len(frame)
            self._speech_end = self.position
            self._spans.add(self.position - len(frame), self.position)
        events += self._step(Signal.VOICE if speech else Signal.QUIET)
        if self._state is SegmenterState.BURST and self.position - self._burst >= self._minimum:
            events += self._step(Signal.ENOUGH)
        elif self._state is SegmenterState.SPEECH and self.position - self._onset <= crowd:
            events += self._step(Signal.ROSE)
        elif self._state is SegmenterState.PAUSE:
            silence = self.position - self._speech_end
            if silence >= self._patience():
                events += self._step(Signal.EXPIRED)
            elif silence - len(frame) < self._post_roll <= silence:
                events += self._step(Signal.SETTLED)
        elif self._state is SegmenterState.SILENCE:
            kept = CLIP if self.position - self._flushed <= CLIP else self._pre_roll
            self._forget(max(self._done, self.position - kept))
        return events

    def _patience(self) -> int:
        """The silence that ends the open utterance, in samples.

        It falls with the utterance's length: a short pause is a better place to cut than the cap, and a
        caption of 30 s is too long to read.
        """
        assert self._start is not None
        length = (self._speech_end - self._start) / self._cap
        hurry = min(max(3 * length - 1.5, 0.0), 1.0)
        return round(self._endpoint - hurry * (self._endpoint - self._post_roll))

    def flush(self, rest: NDArray[np.float32], *, last: bool = False) -> list[SegmenterEvent]:
        """Take `rest`, less than a frame and not judged, and end the open utterance here.

        Without an open utterance, a short clip since the last flush is one, whatever its frames were judged.
        last: the stream ends; a clip behind utterances is then the sound of the room.
        """
        events = self._append(rest)
        sought = self._state is SegmenterState.SILENCE and not (last and self._in_utterances)
        events += self._step(Signal.CLIP if sought and self._is_clip() else Signal.FLUSH)
        self._flushed = self._parted = self.position
        self._forget(max(self._done, self.position - self._pre_roll))
        return events

    def pause(self, rest: NDArray[np.float32]) -> list[SegmenterEvent]:
        """Take `rest`, less than a frame and not judged, and end the open utterance as a pause would."""
        events = self._append(rest)
        if self._start is None:
            return events
        events += self._step(Signal.FLUSH)
        self._parted = self.position
        return events

    def _is_clip(self) -> bool:
        """Whether the audio since the last flush is short, audible and in no utterance."""
        if self._done > self._flushed or not self._minimum <= self.position - self._flushed <= CLIP:
            return False
        audio = self.buffer.read(self._flushed, self.position).astype(np.float64)
        frames = np.array_split(audio - audio.mean(), -(-len(audio) // LOUDNESS))
        return max(float(np.mean(frame**2)) for frame in frames) >= AUDIBLE**2

    def _append(self, samples: NDArray[np.float32]) -> list[SegmenterEvent]:
        events: list[SegmenterEvent] = []
        if self._start is not None and self.position + len(samples) - self._start > self._cap:
            events = self._step(Signal.FULL)
        self.buffer.append(samples)
        return events

    def _step(self, signal: Signal) -> list[SegmenterEvent]:
        self._state, acts = STEPS[self._state, signal]
        return [event for act in acts for event in self._acts[act]()]

    def _begin(self) -> list[SegmenterEvent]:
        self._start = max(self._done, self._burst - self._pre_roll)
        self._onset = self._burst
        self._gaps += self._start - self._done
        parted = self._parted >= self._done
        silence = math.inf if parted else (self._burst - self._spoken) / self._endpoint
        return [Began(self._start, self._onset, silence)]

    def _pause(self) -> list[SegmenterEvent]:
        return [Paused(self._speech_end + self._post_roll)]

    def _end(self) -> list[SegmenterEvent]:
        return [self._close(min(self._speech_end + self._post_roll, self.position))]

    def _cut(self) -> list[SegmenterEvent]:
        assert self._start is not None
        search = max(self._start, self.position - self._cut_search)
        cut = search + quietest_point(self.buffer.read(search, self.position))
        ended = self._close(cut)
        self._start = self._onset = cut
        return [ended, Began(cut, cut, silence=0)]

    def _move(self) -> list[SegmenterEvent]:
        """He rose within the last moments, which are less than the pre-roll."""
        assert self._start is not None
        onset = max(self._onset, self.position - self._pre_roll)
        start = max(self._start, onset - self._pre_roll)
        self._gaps += start - self._start
        self._start, self._onset = start, onset
        self._forget(start)
        return [Moved(start, onset)]

    def _clip(self) -> list[SegmenterEvent]:
        """A clip as an utterance: no frame of it counts as voiced, so no language is learnt from it."""
        self._gaps += self._flushed - self._done
        self._start = self._onset = self._speech_end = self._flushed
        return [Began(self._flushed, self._flushed), self._close(self.position)]

    def _close(self, stop: int) -> Ended:
        assert self._start is not None
        voiced = min(self._speech_end, stop) - self._onset
        span = self._start, stop
        ended = Ended(*span, voiced, self.buffer.read(*span), self._spans.within(*span))
        self._in_utterances += stop - self._start
        self._start = None
        self._done = stop
        self._spoken = self._speech_end
        self._forget(stop)
        return ended

    def _forget(self, before: int) -> None:
        self.buffer.forget(before)
        self._spans.forget(before)


def quietest_point(audio: NDArray[np.float32]) -> int:
    """The middle of the quietest stretch of SMOOTHING samples in `audio`, which is longer: [n].

    Among equally quiet ones the last, so that the utterance before keeps as much as it can.
    """
    assert len(audio) > SMOOTHING
    total = np.concatenate([[0.0], np.cumsum(np.square(audio, dtype=np.float64))])
    energy = total[SMOOTHING:] - total[:-SMOOTHING]  # [len(audio) - SMOOTHING + 1]
    return len(energy) - 1 - int(np.argmin(energy[::-1])) + SMOOTHING // 2
