"""Contenders against each other in one run: who reads what when, and what the times amount to.

Knows no engine and reads no clock itself. The order rotates: every repeat starts with another
contender, so that none is always the first or the last of a warming machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model.bench.clips import Clip
from model.whisper.measure import timed

RESAMPLES = 2000  # of the bootstrap, as in Whisper-Flash


@dataclass(frozen=True, slots=True)
class Transcription:
    """What a contender makes of one clip.

    tokens: as emitted, the end of transcript included where the contender tells it. text_tokens:
    how many of them are text. exact: whether tokens can be compared with captiond's one by one.
    rounds, proposed, accepted: target passes after the prefill, and drafted tokens; None where the
    contender does not tell.
    """

    text: str
    tokens: tuple[int, ...]
    text_tokens: int
    exact: bool = False
    rounds: int | None = None
    proposed: int = 0
    accepted: int = 0


class Contender(Protocol):
    """Something that turns waveforms into text."""

    @property
    def name(self) -> str:
        """As the tables call it."""
        ...

    def read(self, clips: Sequence[Clip]) -> list[Transcription]:
        """All clips as one batch, from waveforms in memory to text, in their order."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One contender's run. seconds: float64 [units], medians over the repeats.

    readings: of the last repeat, by clip. unsteady: clips whose tokens were not the same every time.
    """

    name: str
    seconds: NDArray[np.float64]
    transcriptions: list[Transcription]
    unsteady: int


def units_of(clips: Sequence[Clip], batch: int) -> list[list[Clip]]:
    """Neighbours together, `batch` at a time; the last unit may be smaller."""
    return [list(clips[at : at + batch]) for at in range(0, len(clips), batch)]


def run_paired(
    contenders: Sequence[Contender],
    units: Sequence[list[Clip]],
    *,
    repeats: int,
    warm_ups: int,
    tell: Callable[[str], None],
) -> list[Track]:
    """Let every contender read every unit `repeats` times, and warm up on one unit of each size."""
    sizes = {len(unit): unit for unit in units}
    for contender in contenders:
        for unit in sizes.values():
            for _ in range(warm_ups):
                contender.read(unit)
    seconds = np.zeros((len(contenders), repeats, len(units)))
    tokens: list[list[list[tuple[int, ...]]]] = [[] for _ in contenders]
    transcriptions: list[list[Transcription]] = [[] for _ in contenders]
    for repeat in range(repeats):
        for place in range(len(contenders)):
            one = (repeat + place) % len(contenders)
            tell(f"repeat {repeat + 1}/{repeats}: {contenders[one].name}")
            transcriptions[one] = []
            for number, unit in enumerate(units):
                read = partial(contenders[one].read, unit)
                made, seconds[one, repeat, number] = timed(read)
                transcriptions[one] += made
            tokens[one].append([transcription.tokens for transcription in transcriptions[one]])
    return [
        Track(
            contender.name,
            np.median(seconds[one], axis=0),
            transcriptions[one],
            sum(len(set(said)) > 1 for said in zip(*tokens[one], strict=True)),
        )
        for one, contender in enumerate(contenders)
    ]


@dataclass(frozen=True, slots=True)
class Gain:
    """A ratio of times. interval: 95 %, None where the units are too few or too unlike for one."""

    ratio: float
    interval: tuple[float, float] | None


def gain(slow: NDArray[np.float64], fast: NDArray[np.float64]) -> Gain | None:
    """How many times as fast `fast` is on all units together; both [units], paired.

    The interval is the percentile bootstrap's over units, drawn in pairs, with a fixed seed. None
    where a sum is not positive, as differences of times can be on a restless machine.
    """
    if min(slow.sum(), fast.sum()) <= 0:
        return None
    ratio = float(slow.sum() / fast.sum())
    draws = np.random.default_rng(0).integers(len(slow), size=(RESAMPLES, len(slow)))
    above, below = slow[draws].sum(1), fast[draws].sum(1)
    if len(slow) < 2 or min(above.min(), below.min()) <= 0:
        return Gain(ratio, None)
    low, high = np.percentile(above / below, [2.5, 97.5])
    return Gain(ratio, (float(low), float(high)))


@dataclass(frozen=True, slots=True)
class Rounds:
    """How drafting went. alpha: share of proposals accepted, None without any.

    tau: tokens for each target pass, the prefill and the first token aside; None where a text was
    verified within the prefill, or where there was no pass. passes: target passes for each clip,
    the prefill aside.
    """

    alpha: float | None
    tau: float | None
    passes: float


def rounds_of(
    transcriptions: Sequence[Transcription], *, drafted_in_prefill: bool = False
) -> Rounds | None:
    """The figures of a contender that counts its passes; None for one that does not."""
    counts = [
        transcription.rounds for transcription in transcriptions if transcription.rounds is not None
    ]
    if not transcriptions or len(counts) < len(transcriptions):
        return None
    proposed = sum(transcription.proposed for transcription in transcriptions)
    accepted = sum(transcription.accepted for transcription in transcriptions)
    emitted = sum(len(transcription.tokens) - 1 for transcription in transcriptions)
    told = bool(sum(counts)) and not drafted_in_prefill
    return Rounds(
        alpha=accepted / proposed if proposed else None,
        tau=emitted / sum(counts) if told else None,
        passes=sum(counts) / len(counts),
    )


def token_mismatches(ours: Sequence[Transcription], reference: Sequence[Transcription]) -> int:
    """Clips whose token ids differ, the end of transcript included."""
    return sum(a.tokens != b.tokens for a, b in zip(ours, reference, strict=True))
