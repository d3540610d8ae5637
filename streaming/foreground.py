"""Who speaks, and who talks behind him: speech far below the loudest of late is a pause.

A detector of voices takes people who talk in the background for speech, rightly, and the utterance of the one in
front would stay open as long as they talk. Levels tell them apart. Where the quietest moments of the last seconds
are voices, too, someone talks behind, and what is nearer to these moments than to the loudest ones is his.
Where they are silence or noise to the detector, all that it hears is speech: a voice that falls, and a
second one that is weaker than the first. The figures: docs/measurements.md.

Knows levels and judgements; no utterance and no clock.
"""

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streaming.protocol import SAMPLE_RATE

if TYPE_CHECKING:
    from streaming.vad import VoiceActivity

SMOOTHING = 160 * SAMPLE_RATE // 1_000  # samples of which the mean power counts: a syllable's
RECENT = 4 * SAMPLE_RATE  # samples in which quiet moments are sought; sentences have gaps as often
SETTLING = SAMPLE_RATE // 2  # samples at the beginning of a stream, of which all is speech
SHARE = 0.5  # of the way from the loudest level to the quietest: where the foreground ends
SPREAD_DB = 13.0  # ... yet at most so far above the quietest: several voices vary no more
FAR_DB = 30.0  # so far below the loudest nothing is the foreground
VOICES = 0.75  # the share of quiet frames that the detector hears as speech if someone is behind
# Samples of quiet voices on end from which someone talks behind; less is a soft word. A phrase of the speaker
# himself may be soft, so what has not ended yet must be longer.
TALK = 400 * SAMPLE_RATE // 1_000
STILL_TALK = 700 * SAMPLE_RATE // 1_000
MEMORY = 10 * SAMPLE_RATE  # samples in which others, or the noise of the room, were heard
ONLY_VOICES = 0.9  # the share where nothing but voices is behind
HOLD = 3 * SAMPLE_RATE  # samples that the loudest level lasts: longer than a pause in a sentence
FALL_DB = 3.1  # a second, from then on: whoever speaks next may be weaker
SLOWLY = 4.0  # it falls so many times more slowly while voices go on behind
REFRESH_DB = 6.0  # speech so close to the loudest renews it
OPEN_DB = 3.0  # whoever begins to speak, with others behind, must be so much nearer to the loudest
SILENCE = 700 * SAMPLE_RATE // 1_000  # samples without the foreground from which speech begins anew
# Samples behind the foreground that are his, if speech: words end softly.
HANGOVER = 96 * SAMPLE_RATE // 1_000
# Someone speaks up in front of others: their voices went on for so long without a gap, never further apart in
# level than SPREAD_DB, and now one is so far above them, which takes a while to swell.
CROWD = SAMPLE_RATE  # samples
UP_DB = 6.0
SWELL = 256 * SAMPLE_RATE // 1_000  # samples
SILENT = 1e-10  # power: below the rounding of 16 bits


class Foreground:
    """A detector of one stream whose speech is that of the foreground alone."""

    def __init__(self, detector: "VoiceActivity") -> None:
        self.detector = detector
        frame = detector.frame
        self.frame = frame
        self._powers: deque[float] = deque(maxlen=SMOOTHING // frame)
        self._levels: deque[float] = deque(maxlen=MEMORY // frame)  # dB, smoothed
        self._voices: deque[bool] = deque(maxlen=MEMORY // frame)
        self._recent = RECENT // frame
        self._settling = SETTLING // frame
        self._hold = HOLD // frame
        self._fall = FALL_DB * frame / SAMPLE_RATE
        self._hangover = HANGOVER // frame
        self._loudest = -np.inf  # dB: the foreground's
        self._age = 0  # frames since something was as loud, or nearly so
        self._behind = self._hangover + 1  # frames since the foreground
        self._silence = SILENCE // frame
        self._talk, self._still_talk = TALK // frame, STILL_TALK // frame
        self._memory = MEMORY // frame
        self._others = self._memory  # frames since others were heard for so long
        self._run = 0  # frames of voices on end
        # Samples, the last frame's included, for which others talked without a pause where someone spoke up
        # before them in it; else 0.
        self.crowd = 0

    def is_speech(self, frame: NDArray[np.float32]) -> bool:
        """Whether the next frame, [self.frame] in [-1, 1], is speech of the foreground."""
        voice = self.detector.is_speech(frame)
        level = self._level(frame)
        self._levels.append(level)
        self._voices.append(voice)
        self._run = self._run + 1 if voice else 0
        self.crowd = self._crowd(level)
        if voice and level >= self._threshold():
            self._behind = 0
            if level >= self._loudest - REFRESH_DB:
                self._loudest = max(level, self._loudest)
                self._age = 0
        else:
            self._behind += 1
        self._age += 1
        if self._age > self._hold:
            self._loudest -= self._fall / (SLOWLY if voice else 1.0)
        return voice and self._behind <= self._hangover

    def _level(self, frame: NDArray[np.float32]) -> float:
        self._powers.append(float(np.mean(np.square(frame, dtype=np.float64))))
        return float(10.0 * np.log10(np.mean(self._powers) + SILENT))

    def _threshold(self) -> float:
        """The level in dB from which a voice is the foreground's."""
        levels = np.array(self._levels)
        quietest = float(levels[-self._recent :].min())
        depth = self._loudest - quietest
        far = self._loudest - FAR_DB
        if len(levels) < self._settling or depth <= 0.0:
            return far
        near = quietest + min((1.0 - SHARE) * depth, SPREAD_DB)
        quiet = levels < near
        heard = np.array(self._voices)
        voices = heard[quiet].mean()
        self._others += 1
        if voices >= VOICES and self._talks(quiet & heard):
            self._others = 0
        if voices < VOICES or self._others > self._memory:
            return far
        anew = voices >= ONLY_VOICES and self._behind > self._silence
        return max(far, near + OPEN_DB if anew else near)

    def _talks(self, behind: NDArray[np.bool_]) -> bool:
        """Whether frames of quiet voices are so many on end that someone else talks."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], behind, [False]])))
        runs = edges[1::2] - edges[::2]
        ended = runs[:-1] if behind[-1] else runs
        return bool(ended.max(initial=0) >= self._talk or runs.max(initial=0) >= self._still_talk)

    def _crowd(self, level: float) -> int:
        run = min(self._run, len(self._levels), self._recent)
        onset = len(self._levels) - run + SMOOTHING // self.frame
        before = np.array(self._levels)[onset : -(SWELL // self.frame)]
        if len(before) < CROWD // self.frame or level < before.max() + UP_DB:
            return 0
        self._run = 0
        return run * self.frame if np.ptp(before) <= SPREAD_DB else 0
