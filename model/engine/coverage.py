"""Coverage: a transcript accounts for all voiced audio of its utterance, or says how much it lacks.

A finished sequence whose words pass voiced audio by (model/whisper/uncovered.py) is held; what it left out is
decoded as requests of their own, in its place, one after another, and the outputs are joined by time. So
every piece is plain decoding of its samples. A piece is taken only where Whisper's thresholds trust it:
nothing is written for music that a detector took for a voice.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch

from model.engine.fallback import LEAST_LOGPROB, SILENCE
from model.engine.joining import Insertion, joined
from model.engine.requests import Failure, Request, RequestOutput
from model.engine.runner import Runner
from model.engine.sequence import Sequence
from model.engine.word_times import attend, word_times
from model.whisper.alignment import Heads, WordTiming
from model.whisper.mel import SAMPLE_RATE
from model.whisper.uncovered import Stretch, stretches

# The pass that finds what is uncovered takes 2 % of a decode's time or more, so that it runs only where it
# may find something: behind an end of transcript that was doubted, or few tokens a second. Measured with
# base: for all 59 finals that had lost a sentence, and for 28 of 45 normal ones. On one thread 17 finals of
# single readers took 0.8 % more CPU time with it (6 passes of 20 to 50 ms, a decode takes 1.2 to 2 s).
SURE_END = -0.02  # log-probability of the end of transcript from which it is not doubted
TOKENS_PER_SECOND = 4.0  # of voiced audio
MOST_PARTS = 3  # decoded besides an utterance, so that it takes four times as long at most
MOST_DEPTH = 2  # a part may leave out a stretch, too
# From which a part may be in another language than its utterance. Of some 20 parts all in another one had
# 0.82 or more, half a sentence that was taken for Arabic 0.66.
ANOTHER_LANGUAGE = 0.8


@dataclass(slots=True, eq=False)
class Part:
    """An utterance, or a stretch of one, with its own stretches as far as they are decoded.

    output: None until it is decoded, and for good where that failed or is not trusted.
    """

    request: Request
    depth: int = 0
    output: RequestOutput | None = None
    parts: list[tuple[Stretch, "Part"]] = field(default_factory=list)

    def whole(self, runner: Runner) -> RequestOutput | None:
        """Its output with those of its parts, if it has one."""
        if self.output is None:
            return None
        found = [(stretch, part.whole(runner)) for stretch, part in self.parts]
        return joined(
            self.output,
            [Insertion(stretch, output) for stretch, output in found if output is not None],
            runner.tokens,
        )


@dataclass(slots=True, eq=False)
class Family:
    """An utterance, which is held, the part of it that is in a slot, and those that wait for the slot."""

    utterance: Part
    running: Part
    waiting: deque[Part] = field(default_factory=deque)
    parts: int = 0  # so far
    passes: list[RequestOutput] = field(default_factory=list)  # of parts that are not trusted


class Coverage:
    """Examines finished sequences, and holds those that are not complete.

    A held utterance always has one request in a slot, its own or a part's. admit: takes a part's request
    into the engine, in the place of the one before.
    """

    def __init__(self, runner: Runner, heads: Heads, admit: Callable[[Request], None]) -> None:
        self._runner = runner
        self._admit = admit
        self._heads = heads
        self._held: dict[Request, Family] = {}  # by the request in a slot

    def finish(self, slot: int, sequence: Sequence) -> list[RequestOutput | Failure]:
        """What is done with the finished `sequence` in `slot`, which may be freed: one output or none."""
        result = sequence.result()
        if isinstance(result, Failure):
            self._runner.clear(slot)
            return self.fail(result)
        family = self._held.get(sequence.request)
        if family is None:
            utterance = Part(sequence.request)
            family = Family(utterance, utterance)
        output, found = self._examined(slot, sequence, result)
        part = family.running
        if part.depth and not is_trusted(output):
            family.passes.append(output)
            return self._next(family)
        part.output = output
        if part.depth < MOST_DEPTH:
            for stretch in found[: MOST_PARTS - family.parts]:
                child = Part(part_request(output, stretch), part.depth + 1)
                part.parts.append((stretch, child))
                family.waiting.append(child)
                family.parts += 1
        return self._next(family)

    def fail(self, failure: Failure) -> list[RequestOutput | Failure]:
        """As `finish`, for a request that failed: what a failed part should have covered stays uncovered."""
        family = self._held.get(failure.request)
        return [failure] if family is None else self._next(family)

    def cancel(self, request: Request) -> Request:
        """Forget that `request` is held; returns the request that is in a slot for it."""
        for running, family in self._held.items():
            if family.utterance.request is request:
                del self._held[running]
                return running
        return request

    def _next(self, family: Family) -> list[RequestOutput | Failure]:
        self._held.pop(family.running.request, None)
        if family.waiting:
            family.running = family.waiting.popleft()
            self._held[family.running.request] = family
            self._admit(family.running.request)
            return []
        output = family.utterance.whole(self._runner)
        assert output is not None
        return [with_passes(output, family.passes)]

    def _examined(
        self, slot: int, sequence: Sequence, output: RequestOutput
    ) -> tuple[RequestOutput, tuple[Stretch, ...]]:
        """The output with its words' times and its coverage, as asked for, and what can be decoded."""
        request = sequence.request
        voiced = sum(stop - start for start, stop in request.speech) / SAMPLE_RATE
        text = [token for token in output.tokens if token < self._runner.tokens.eot]
        timed: tuple[WordTiming, ...] | None = () if request.words and not text else None
        found: tuple[Stretch, ...] = ()
        # What is silence by its figures is complete; streaming judges whether it is shown.
        asked = (
            bool(request.speech)
            and output.no_speech <= SILENCE
            and is_doubtful(sequence, len(text) / max(voiced, 0.1))
        )
        if text and (request.words or asked):
            with suppress(torch.OutOfMemoryError):  # a text is delivered without them then
                attended = attend(self._runner, self._heads, slot, sequence, text)
                if asked:
                    found = stretches(attended.weights, request.speech, request.audio)
                if request.words:
                    timed = word_times(self._runner, sequence, attended)
        covered = voiced - sum(stretch.voiced for stretch in found) if text else 0.0
        output = replace(output, timed=timed, voiced=voiced, covered=max(covered, 0.0))
        return output, tuple(
            stretch
            for stretch in found
            # The same samples have the same text; and words that were promised come first.
            if (stretch.start, stretch.stop) != (0, len(request.audio))
            and stretch.token >= len(sequence.prefix)
        )


def is_doubtful(sequence: Sequence, tokens_per_second: float) -> bool:
    """Whether the figures of a finished sequence leave room for a sentence that it lost."""
    return (
        tokens_per_second < TOKENS_PER_SECOND
        or len(sequence.attempts) > 1
        or len(sequence.tokens) == sequence.max_new_tokens
        or sequence.attempts[-1].looped
        or sequence.logprobs[-1] < SURE_END
    )


def is_trusted(output: RequestOutput) -> bool:
    """Whether a part has a text, and passes Whisper's thresholds, that of silence by itself.

    Of speech single digits have a no-speech probability of 0.63, whole sentences of 0.04 at most.
    """
    return (
        bool(output.text)
        and output.mean_logprob >= LEAST_LOGPROB
        and output.no_speech <= SILENCE
        and not output.repetitive
    )


def part_request(output: RequestOutput, stretch: Stretch) -> Request:
    """The request for a stretch that `output` left out: its options, but tried once, without its texts."""
    request, start, stop = output.request, stretch.start, stretch.stop
    return replace(
        request,
        audio=request.audio[start:stop],
        speech=tuple(
            (max(a, start) - start, min(b, stop) - start)
            for a, b in request.speech
            if a < stop and b > start
        ),
        prefix="",
        draft_tokens=(),
        fallback_temperatures=(),
        language_hint=output.language,
        hint_below=ANOTHER_LANGUAGE,
    )


def with_passes(output: RequestOutput, others: list[RequestOutput]) -> RequestOutput:
    """`output` with the passes of `others`, too: they took time, though their texts are not trusted."""
    return replace(
        output,
        rounds=output.rounds + sum(other.rounds for other in others),
        proposed=output.proposed + sum(other.proposed for other in others),
        accepted=output.accepted + sum(other.accepted for other in others),
        reused=output.reused + sum(other.reused for other in others),
    )
