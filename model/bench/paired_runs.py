"""Paired runs: contenders take turns on the same clips, and their times are compared in pairs.

Every repeat starts with another contender, so that none is always first or last on a warming machine.
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
    """A contender's transcript of one clip.

    tokens: as emitted, with the end of transcript if the contender reports it. text_tokens: the number of
    those that are text. exact: whether tokens can be compared with captiond's one by one. rounds: target
    passes after the prefill, None if the contender does not report them. proposed, accepted: drafted tokens.
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
        """Its name in the report."""
        ...

    def transcribe(self, clips: Sequence[Clip]) -> list[Transcription]:
        """Transcribe all clips as one batch, from waveforms in memory to text, in their order."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """One contender's results.

    seconds: float64 [units], medians over the repeats. transcriptions: of the last repeat, by clip.
    unsteady: clips with different tokens in some repeats.
    """

    name: str
    seconds: NDArray[np.float64]
    transcriptions: list[Transcription]
    unsteady: int


def units_of(clips: Sequence[Clip], batch: int) -> list[list[Clip]]:
    """Consecutive clips in units of `batch`; the last unit may be smaller."""
    return [list(clips[at : at + batch]) for at in range(0, len(clips), batch)]


def run_paired(
    contenders: Sequence[Contender],
    units: Sequence[list[Clip]],
    *,
    repeats: int,
    warm_ups: int,
    tell: Callable[[str], None],
) -> list[Measurement]:
    """Every contender transcribes every unit `repeats` times, after warm-ups on one unit of each size."""
    sizes = {len(unit): unit for unit in units}
    for contender in contenders:
        for unit in sizes.values():
            for _ in range(warm_ups):
                contender.transcribe(unit)
    seconds = np.zeros((len(contenders), repeats, len(units)))
    tokens: list[list[list[tuple[int, ...]]]] = [[] for _ in contenders]
    transcriptions: list[list[Transcription]] = [[] for _ in contenders]
    for repeat in range(repeats):
        for turn in range(len(contenders)):
            one = (repeat + turn) % len(contenders)
            tell(f"repeat {repeat + 1}/{repeats}: {contenders[one].name}")
            transcriptions[one] = []
            for number, unit in enumerate(units):
                work = partial(contenders[one].transcribe, unit)
                batch, seconds[one, repeat, number] = timed(work)
                transcriptions[one] += batch
            tokens[one].append([transcription.tokens for transcription in transcriptions[one]])
    return [
        Measurement(
            contender.name,
            np.median(seconds[one], axis=0),
            transcriptions[one],
            sum(len(set(repeated)) > 1 for repeated in zip(*tokens[one], strict=True)),
        )
        for one, contender in enumerate(contenders)
    ]


@dataclass(frozen=True, slots=True)
class Gain:
    """A ratio of times. interval: of 95 %; None for too few or too different units."""

    ratio: float
    interval: tuple[float, float] | None


def gain(slow: NDArray[np.float64], fast: NDArray[np.float64]) -> Gain | None:
    """The ratio of total times, `slow` to `fast`; both [units], paired.

    The interval is a percentile bootstrap over pairs, with a fixed seed. None for a sum that is not
    positive, as sums of differences can be on a busy machine.
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
    """Acceptance of drafts.

    alpha: share of proposals accepted; None without any. tau: tokens for each target pass, the prefill and
    the first token not counted; None if the prefill verified a text, or without a pass. passes: target
    passes for each clip after the prefill.
    """

    alpha: float | None
    tau: float | None
    passes: float


def rounds_of(
    transcriptions: Sequence[Transcription], *, drafted_in_prefill: bool = False
) -> Rounds | None:
    """Acceptance of a contender's drafts; None for one that does not report its passes."""
    counts = [
        transcription.rounds for transcription in transcriptions if transcription.rounds is not None
    ]
    if not transcriptions or len(counts) < len(transcriptions):
        return None
    proposed = sum(transcription.proposed for transcription in transcriptions)
    accepted = sum(transcription.accepted for transcription in transcriptions)
    emitted = sum(len(transcription.tokens) - 1 for transcription in transcriptions)
    has_tau = bool(sum(counts)) and not drafted_in_prefill
    return Rounds(
        alpha=accepted / proposed if proposed else None,
        tau=emitted / sum(counts) if has_tau else None,
        passes=sum(counts) / len(counts),
    )


def token_mismatches(ours: Sequence[Transcription], reference: Sequence[Transcription]) -> int:
    """Clips whose token ids differ, the end of transcript included."""
    return sum(a.tokens != b.tokens for a, b in zip(ours, reference, strict=True))
