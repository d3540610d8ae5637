"""People who talk behind a speaker: material made of the shared recordings.

One reader's sentence amid several others who talk before, under and behind it, each at the same level.
Everything follows from the seed and the manifest; no reader is both.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming.protocol import SAMPLE_RATE
from tests.support.audio import Recording, recordings
from tests.support.turns import Sentence, faded, sentences, trimmed

SEED = 21
VOICES = (4, 6, 8)
BEFORE, BEHIND = 2 * SAMPLE_RATE, 5 * SAMPLE_RATE  # samples of the others alone
LONGEST = 8 * SAMPLE_RATE  # of the sentence

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Amid:
    """A sentence amid others; its speech is [start, stop) of `audio`."""

    sentence: Sentence
    voices: int
    audio: Samples
    start: int
    stop: int


def amid(most: int, decibels: float | None) -> list[Amid]:
    """`most` sentences of readers in turn, the others so many dB below them, None: silent."""
    found = [
        one
        for one in sentences("librispeech_testother", language="en")
        if len(one.audio) <= LONGEST
    ]
    others = recordings(use="train", language="en", under="librispeech_train100")
    return [
        _mixed(one, VOICES[n % len(VOICES)], others, n, decibels)
        for n, one in enumerate(found[:most])
    ]


def _mixed(
    one: Sentence, voices: int, others: Sequence[Recording], number: int, decibels: float | None
) -> Amid:
    stop = BEFORE + len(one.audio)
    audio = np.pad(faded(one.audio), (BEFORE, BEHIND))
    if decibels is not None:
        behind = babble(voices, len(audio), others, number)
        audio = audio + behind * level(one.audio) * 10 ** (-decibels / 20)
    return Amid(one, voices, np.asarray(audio.clip(-1, 1), np.float32), BEFORE, stop)


def babble(voices: int, length: int, others: Sequence[Recording], number: int) -> Samples:
    """So many voices at once, [length], of level 1; each reads on, one recording behind the other."""
    dice = random.Random(f"{SEED} {number}")
    total = np.zeros(length)
    for _ in range(voices):
        read: list[Samples] = []
        while sum(map(len, read)) < length:
            speech = trimmed(dice.choice(others).audio())
            read.append(speech / np.float32(level(speech)))
        total += np.concatenate(read)[:length]
    return np.asarray(total / level(total), np.float32)


def level(audio: NDArray[np.floating]) -> float:
    """The root of its mean power."""
    return float(np.sqrt(np.mean(np.square(audio, dtype=np.float64))))
