"""Parts through the engine: what is left out, by a rule made here, is decoded as plain requests are."""

import random
from dataclasses import replace
from functools import cache
from itertools import count

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.engine.coverage import is_doubtful, is_trusted, part_request
from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Failure, Request, RequestOutput
from model.engine.sequence import Attempt, Sequence
from model.whisper.uncovered import Spans, Stretch
from tests.support.oracles import run_shuffled
from tests.support.references import PROPOSERS
from tests.support.tiny import CHECKPOINT
from tests.support.utterances import noise

EOT = CHECKPOINT.tokens.eot
LEAST = 4_000  # samples of an utterance that leaves stretches


def left_out(weights: Tensor, spans: Spans, audio: NDArray[np.float32]) -> tuple[Stretch, ...]:
    """The first and the last quarter of whatever is long enough."""
    samples, tokens = len(audio), weights.shape[1] - 1
    if samples < LEAST:
        return ()
    quarter = samples // 4
    return (
        Stretch(0, quarter, quarter / 16_000, 0),
        Stretch(samples - quarter, samples, quarter / 16_000, tokens),
    )


@pytest.fixture(autouse=True)
def _every_part_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model's words are all doubtful, and none of them can be trusted."""
    monkeypatch.setattr("model.engine.coverage.stretches", left_out)
    monkeypatch.setattr("model.engine.coverage.is_trusted", lambda _: True)


def asked(seed: int, samples: int = 3_000, **options: object) -> Request:
    whole = ((0, samples),)
    return Request(noise(seed, samples), language="en", speech=whole, **options)  # type: ignore[arg-type]  # any fields


def plainly(request: Request) -> RequestOutput:
    """One target pass a token, and nothing accounted for."""
    engine = Engine(CHECKPOINT, slots=1, proposer=lambda _: None)
    (result,) = transcribe(engine, [replace(request, speech=(), draft_tokens=())])
    return result


def text_tokens(output: RequestOutput) -> tuple[int, ...]:
    return tuple(token for token in output.tokens if token < EOT)


def by_hand(request: Request) -> tuple[int, ...]:
    """The tokens of an utterance whose quarters leave nothing out."""
    quarter = len(request.audio) // 4
    pieces = (request.audio[:quarter], request.audio, request.audio[-quarter:])
    outputs = [plainly(replace(request, audio=piece)) for piece in pieces]
    tokens = [token for one in outputs for token in text_tokens(one)]
    return (*tokens, EOT) if outputs[1].tokens[-1] == EOT else tuple(tokens)


@cache
def alone(request: Request) -> RequestOutput:
    """What it is without drafts and without company."""
    (result,) = transcribe(Engine(CHECKPOINT, slots=1, proposer=lambda _: None), [request])
    return result


REQUESTS = [asked(i, 1_000 + 1_500 * i, prompt=("", "before")[i % 2]) for i in range(9)]
WARM = [replace(one, temperature=0.7, seed=n) for n, one in enumerate(REQUESTS[::3])]


def test_pieces_are_plain_decoding_of_their_samples() -> None:
    for request in REQUESTS[2:]:
        (result,) = transcribe(Engine(CHECKPOINT, slots=2), [request])
        assert result.request is request
        assert result.tokens == by_hand(request)


def test_without_speech_nothing_is_accounted_for() -> None:
    request = replace(asked(1, 8_000), speech=())
    (result,) = transcribe(Engine(CHECKPOINT, slots=1), [request])
    assert result.tokens == plainly(request).tokens
    assert (result.voiced, result.covered) == (0.0, 0.0)


@pytest.mark.parametrize("name", ["none", "random", "reuse"])
@pytest.mark.parametrize("block", [1, 8])
@pytest.mark.parametrize(("slots", "static"), [(1, False), (3, False), (8, False), (3, True)])
def test_proposers_and_company_change_no_token(
    name: str, block: int, slots: int, static: bool
) -> None:
    """Parts take their utterance's place, whatever else is under way."""
    engine = Engine(CHECKPOINT, slots=slots, proposer=PROPOSERS[name], block=block, static=static)
    for one in run_shuffled(engine, REQUESTS + WARM, random.Random(f"{name} {slots}")):
        wanted = alone(one.request)
        assert (one.tokens, one.text) == (wanted.tokens, wanted.text)
        assert one.covered == wanted.covered
    assert engine.occupied == 0


def test_a_joined_text_is_a_draft_of_its_utterance() -> None:
    """It changes no token, and saves passes."""
    request = asked(4, 8_000)
    (before,) = transcribe(Engine(CHECKPOINT, slots=1), [request])
    (after,) = transcribe(
        Engine(CHECKPOINT, slots=1), [replace(request, draft_tokens=before.tokens)]
    )
    assert after.tokens == before.tokens
    assert after.reused > 0
    assert after.rounds < before.rounds


def test_an_utterance_takes_one_slot_throughout() -> None:
    engine = Engine(CHECKPOINT, slots=2)
    engine.admit(asked(1, 8_000))
    results: list[RequestOutput | Failure] = []
    while not results:
        assert engine.occupied == 1
        results = engine.step()
    assert engine.occupied == 0


def test_three_parts_are_decoded_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of an utterance, one of theirs; nothing of that one's, however much it leaves out."""
    lengths = examined(monkeypatch)
    (result,) = transcribe(Engine(CHECKPOINT, slots=1), [asked(3, 32_000)])
    assert lengths == [32_000, 8_000, 8_000, 2_000]
    assert result.covered < result.voiced == 2.0


def examined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The samples of what is examined, in order."""
    lengths: list[int] = []

    def tell(weights: Tensor, spans: Spans, audio: NDArray[np.float32]) -> tuple[Stretch, ...]:
        lengths.append(len(audio))
        assert all(0 <= start < stop <= len(audio) for start, stop in spans)
        return left_out(weights, spans, audio)

    monkeypatch.setattr("model.engine.coverage.stretches", tell)
    return lengths


def test_a_stretch_that_is_all_of_the_audio_is_not_decoded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "model.engine.coverage.stretches",
        lambda weights, spans, audio: (Stretch(0, len(audio), 0.25, 0),),
    )
    request = asked(1, 8_000)
    (result,) = transcribe(Engine(CHECKPOINT, slots=1), [request])
    assert result.tokens == plainly(request).tokens
    assert (result.voiced, result.covered) == (0.5, 0.25)


def test_a_part_that_is_not_trusted_changes_nothing_but_the_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("model.engine.coverage.is_trusted", lambda _: False)
    request = asked(1, 8_000)
    (result,) = transcribe(Engine(CHECKPOINT, slots=1), [request])
    plain = plainly(request)
    assert (result.tokens, result.text) == (plain.tokens, plain.text)
    assert result.mean_logprob == pytest.approx(plain.mean_logprob, abs=1e-5)
    assert result.rounds > plain.rounds, "passes were made"
    assert (result.voiced, result.covered) == (0.5, 0.25)


def test_a_failed_part_stays_uncovered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may run out for it; its utterance is delivered, and the next part is tried."""
    request = asked(2, 8_000)
    engine = Engine(CHECKPOINT, slots=1)
    passes = count()
    encode = engine.runner.encode

    def exhausted(*args: object) -> None:
        if next(passes) in (1, 2):  # the first part, and once more without the drafter
            raise torch.OutOfMemoryError("CUDA out of memory")
        encode(*args)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(engine.runner, "encode", exhausted)
    monkeypatch.setattr(engine.runner, "give_up_drafter", iter([True, False]).__next__)
    (result,) = transcribe(engine, [request])
    last = text_tokens(plainly(replace(request, audio=request.audio[-2_000:])))
    assert result.tokens == (*text_tokens(plainly(request)), *last, EOT)[: len(result.tokens)]
    assert (result.voiced, result.covered) == (0.5, 0.375)


def test_what_is_held_can_be_cancelled() -> None:
    """At any step: the slot is free, and no result follows; others are unharmed."""
    request, other = asked(1, 8_000), asked(5, 6_000)
    whole = by_hand(other)
    for steps in range(1, 90, 9):
        engine = Engine(CHECKPOINT, slots=2)
        engine.admit(request)
        engine.admit(other)
        results = [one for _ in range(steps) for one in engine.step()]
        engine.cancel(request)
        assert engine.occupied == (other not in [one.request for one in results])
        while engine.occupied:
            results += engine.step()
        assert [one.request for one in results].count(request) <= 1
        (its,) = [one for one in results if one.request is other]
        assert isinstance(its, RequestOutput)
        assert its.tokens == whole


def test_promised_words_come_first() -> None:
    """Nothing is written before a prefix; what is behind it is joined."""
    request = asked(1, 8_000, prefix="promised")
    (result,) = transcribe(Engine(CHECKPOINT, slots=1), [request])
    assert result.text.startswith("promised")
    assert result.covered == 0.375
    assert result.voiced == 0.5


def test_words_are_timed_throughout() -> None:
    (result,) = transcribe(Engine(CHECKPOINT, slots=1), [asked(1, 8_000, words=True)])
    assert result.timed is not None
    edges = [edge for word in result.timed for edge in (word.start, word.end)]
    assert edges == sorted(edges)
    assert 0 <= edges[0] <= edges[-1] <= 0.5
    joined = "".join(word.text for word in result.timed)
    assert joined.replace(" ", "") == "".join(result.text.split())


def test_a_part_asks_for_what_its_utterance_did() -> None:
    request = Request(
        noise(1, 8_000),
        language=("en", "de"),
        prompt="names",
        prefix="promised",
        draft_tokens=(1, 2),
        fallback_temperatures=(0.5,),
        words=True,
        speech=((0, 1_000), (2_000, 5_000), (7_000, 8_000)),
    )
    output = replace(plainly(asked(1)), request=request, language="de")
    part = part_request(output, Stretch(3_000, 7_500, 1.0, 4))
    assert (part.audio == request.audio[3_000:7_500]).all()
    assert part.speech == ((0, 2_000), (4_000, 4_500))
    assert (part.language, part.language_hint, part.hint_below) == (("en", "de"), "de", 0.8)
    assert (part.prompt, part.words) == ("names", True)
    assert (part.prefix, part.draft_tokens, part.fallback_temperatures) == ("", (), ())


@pytest.mark.parametrize(
    ("changes", "trusted"),
    [
        ({}, True),
        ({"text": ""}, False),
        ({"mean_logprob": -1.1}, False),
        ({"no_speech": 0.7}, False),
        ({"looped": True}, False),
        ({"text": "no " * 40}, False),
    ],
)
def test_parts_are_trusted_by_whispers_thresholds(
    changes: dict[str, object], trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    good = replace(plainly(asked(1)), text="some words", mean_logprob=-0.5, no_speech=0.1)
    assert is_trusted(replace(good, **changes)) is trusted  # type: ignore[arg-type]  # its fields


def finished(**changes: object) -> Sequence:
    """A sequence that ended as sure as can be."""
    sequence = Sequence(asked(1), "en")
    sequence.tokens, sequence.logprobs = [5, 6, EOT], [-0.1, -0.1, -0.001]
    sequence.max_new_tokens = 30
    sequence.attempts = [Attempt((5, 6, EOT), "ab", 2, -0.1, 0.0, looped=False)]
    for name, value in changes.items():
        setattr(sequence, name, value)
    return sequence


LOOPED = Attempt((5, 6), "ab", 2, -0.1, 0.0, looped=True)


@pytest.mark.parametrize(
    ("changes", "rate", "doubtful"),
    [
        ({}, 4.5, False),
        ({}, 3.5, True),
        ({"logprobs": [-0.1, -0.1, -0.05]}, 4.5, True),
        ({"max_new_tokens": 3}, 4.5, True),
        ({"attempts": [LOOPED]}, 4.5, True),
        ({"attempts": [*finished().attempts, *finished().attempts]}, 4.5, True),
    ],
    ids=["sure", "few tokens", "end doubted", "no room left", "a loop", "tried again"],
)
def test_what_is_sure_is_not_looked_at(
    changes: dict[str, object], rate: float, doubtful: bool
) -> None:
    assert is_doubtful(finished(**changes), rate) is doubtful


@pytest.mark.parametrize("span", [(-1, 10), (10, 8_001), (10, 10), (20, 10)])
def test_speech_lies_within_the_audio(span: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="speech lies within"):
        Engine(CHECKPOINT, slots=1).check(replace(asked(1, 8_000), speech=(span,)))
