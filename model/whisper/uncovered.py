"""Voiced audio that no word of a transcript listened to, told by the decoder's cross-attention. Pure.

Whisper without timestamps may end after the first of two speakers, or leave out the sentence in another
language. The alignment heads of its words then pass the lost sentence by. Measured with base on 162 finals
of one and of several speakers and languages: all 59 that had lost a sentence hold an uncovered stretch of
1.1 s or more; of 103 that had lost none 102 have less than 0.43 s, and the other one had lost half a sentence
after all. Shares of 0.1 to 0.25 give the same, and so do Silero's thresholds of 0.5 and of 0.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool1d

from model.whisper.alignment import non_silent_states, token_starts
from model.whisper.mel import SAMPLE_RATE, SAMPLES_PER_STATE

Mask = NDArray[np.bool_]
Spans = Sequence[tuple[int, int]]  # [start, stop) each, in samples, ascending

STATES_PER_SECOND = SAMPLE_RATE // SAMPLES_PER_STATE
WIDTH = 25  # states: 0.5 s. A word attends to a few states of its own, and its pauses belong to it
SHARE = 0.2  # of what well attended speech receives; relative, for models differ in their heads
WELL = 0.9  # the quantile that stands for it
LEAST = 30  # voiced states: 0.6 s. Shorter turns ("Yes.") cannot be told from weak attention
SCRAP = 10  # voiced states below which a run is none: 0.2 s
BREATH = 5  # states between two runs of one stretch: 0.1 s
EDGE = 25  # voiced states before or behind a stretch below which it begins or ends with the audio
# Attention strays into the neighbours by half a second: cuts are sought in pauses, outwards further.
OUTWARDS, INWARDS = 25, 20
TEXT_END = 3  # states: where a text ends by dynamic time warping is late by 0.06 s


@dataclass(frozen=True, slots=True)
class Run:
    """States [first, stop), of which `voiced` are uncovered speech."""

    first: int
    stop: int
    voiced: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Samples [start, stop) to be decoded, cut in pauses; `voiced`: seconds of uncovered speech in them.

    token: how many tokens of the text were said before.
    """

    start: int
    stop: int
    voiced: float
    token: int


def stretches(weights: Tensor, spans: Spans, audio: NDArray[np.float32]) -> tuple[Stretch, ...]:
    """The uncovered stretches of `audio`, [samples] at 16 kHz, ascending.

    weights: cross-attention of the alignment heads, [heads, tokens + 1, states]; row n predicts token n of
    the text, the last one its end. At least one token. spans: the voiced frames.
    """
    count = weights.shape[-1]
    speech = voiced_states(spans, count)
    runs = uncovered(weights[:, :-1], speech)
    if not runs:
        return ()
    loud = non_silent_states(audio)
    sounding = np.zeros(count, np.bool_)
    sounding[loud[loud < count]] = True
    states = np.flatnonzero(sounding)
    unbroken = np.zeros(len(states), np.bool_)  # where the text ends is sought regardless of pauses
    begins = np.zeros(weights.shape[1], np.bool_)
    text_end = int(states[token_starts(weights[..., states], begins, unbroken)[-1]])
    peaks = weights[:, :-1].mean(0).argmax(-1).numpy()  # [tokens]

    def stretch(run: Run) -> Stretch:
        first, stop = cut(run, speech, sounding, text_end)
        token = int((peaks < (first + stop) / 2).sum())
        if first == 0:
            token = 0
        elif stop == count:
            token = len(peaks)
        end = min(stop * SAMPLES_PER_STATE, len(audio))
        return Stretch(first * SAMPLES_PER_STATE, end, run.voiced / STATES_PER_SECOND, token)

    return tuple(stretch(run) for run in runs)


def voiced_states(spans: Spans, count: int) -> Mask:
    """The encoder states that hold speech, [count]."""
    mask = np.zeros(count, np.bool_)
    for start, stop in spans:
        mask[start // SAMPLES_PER_STATE : -(-stop // SAMPLES_PER_STATE)] = True
    return mask


def uncovered(
    weights: Tensor, speech: Mask, *, share: float = SHARE, least: int = LEAST
) -> list[Run]:
    """Runs of speech to which no token attends, of at least `least` voiced states each; ascending.

    weights: [heads, tokens, states], of the text alone. speech: [states].
    """
    if not speech.any():
        return []
    smooth = avg_pool1d(weights.mean(0), WIDTH, stride=1, padding=WIDTH // 2)
    mass = smooth.amax(0).numpy()  # [states]
    low = mass < share * np.quantile(mass[speech], WELL)
    runs: list[Run] = []
    for first, stop in runs_of(low & speech):
        run = Run(first, stop, stop - first)
        near = bool(runs) and _same_run(runs[-1], run, low, speech)
        runs.append(_together(runs.pop(), run) if near else run)
    merged: list[Run] = []
    for run in (run for run in runs if run.voiced >= SCRAP):
        # Cut at an inner pause, both halves would lose their context.
        near = bool(merged) and speech[merged[-1].stop : run.first].sum() < least
        merged.append(_together(merged.pop(), run) if near else run)
    return [run for run in merged if run.voiced >= least]


def _same_run(before: Run, run: Run, low: Mask, speech: Mask) -> bool:
    """Whether nothing but a pause or a moment of attention lies between the two."""
    between = slice(before.stop, run.first)
    near = not speech[between].any() or run.first - before.stop <= BREATH
    return near and low[between].mean() > 0.5


def _together(before: Run, run: Run) -> Run:
    return Run(before.first, run.stop, before.voiced + run.voiced)


def runs_of(mask: Mask) -> list[tuple[int, int]]:
    """[first, stop) of every run of true values, ascending."""
    steps = np.diff(mask.astype(np.int8), prepend=0, append=0)
    return [
        (int(first), int(stop))
        for first, stop in zip(np.flatnonzero(steps == 1), np.flatnonzero(steps == -1), strict=True)
    ]


def cut(run: Run, speech: Mask, sounding: Mask, text_end: int) -> tuple[int, int]:
    """The states [first, stop) to decode: from pause to pause, or to the end of the audio.

    sounding: the states outside pauses. text_end: at which the text ends by dynamic time warping; a run
    with which the audio ends begins there at the latest. The audio's edges are cuts where less than half
    a second of speech lies behind them.
    """
    count = len(speech)
    first, stop = 0, count
    if speech[: run.first].sum() >= EDGE:
        first = _pause(run.first, OUTWARDS, INWARDS, speech, sounding)
    if speech[run.stop :].sum() >= EDGE:
        stop = _pause(run.stop, INWARDS, OUTWARDS, speech, sounding)
    else:
        first = min(first, max(0, text_end - TEXT_END))
    return (first, stop) if stop - first >= INWARDS else (run.first, run.stop)


def _pause(at: int, back: int, on: int, speech: Mask, sounding: Mask) -> int:
    """The middle of the longest pause within [at - back, at + on); `at` where there is none."""
    low, high = max(0, at - back), min(len(speech), at + on)
    for quiet in (~sounding[low:high], ~speech[low:high]):
        if found := runs_of(quiet):
            first, stop = max(found, key=lambda pause: (pause[1] - pause[0], pause[0]))
            return low + (first + stop) // 2
    return at
