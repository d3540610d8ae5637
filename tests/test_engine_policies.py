"""Policies on top of plain decoding: fallback, stop_on_repetition, the prefix, the language hint."""

from dataclasses import replace

import pytest
import torch

from model.engine.engine import Engine
from model.engine.fallback import MOST_COMPRESSION, failed
from model.engine.offline import transcribe
from model.engine.requests import Request, RequestOutput
from model.engine.sequence import Sequence
from model.whisper.mel import LogMel
from model.whisper.network import Cache
from tests.support.references import alone
from tests.support.tiny import CHECKPOINT, changed, tiny_checkpoint
from tests.support.tiny_drafters import tiny_drafter, whisper_of
from tests.support.utterances import REQUESTS, noise


def rank(attempt: RequestOutput) -> tuple[bool, float]:
    return attempt.compression_ratio <= MOST_COMPRESSION, attempt.mean_logprob


def attempts(request: Request) -> list[RequestOutput]:
    """The transcripts that a request's fallback leads through, each decoded by itself."""
    temperatures = (request.temperature, *request.fallback_temperatures)
    return [
        alone(
            replace(request, temperature=warmth, seed=request.seed ^ step, fallback_temperatures=())
        )
        for step, warmth in enumerate(temperatures)
    ]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("slots", [1, 3])
def test_a_ladder_is_a_policy_on_top_of_plain_decoding(slots: int, static: bool) -> None:
    """Each attempt is what its temperature and seed give alone; the first that passes is kept."""
    requests = [
        Request(
            noise(i, 2 + 1500 * i),
            language="en",
            seed=i,
            fallback_temperatures=(0.3, 0.9),
            prompt="ab" * i,
        )
        for i in range(8)
    ]
    kept = set()
    results = transcribe(Engine(CHECKPOINT, slots=slots, static=static), requests)
    for request, result in zip(requests, results, strict=True):
        tried = attempts(request)
        passed = [one for one in tried if not failed(one.text, one.mean_logprob, one.no_speech)]
        best = passed[0] if passed else max(tried, key=rank)
        assert result.tokens == best.tokens
        assert result.temperature == best.request.temperature
        kept.add(result.temperature)
    assert len(kept) > 1, "nothing fell back: the test says nothing"


def test_the_guard_changes_no_text_that_does_not_loop() -> None:
    stopping = [replace(request, stop_on_repetition=True) for request in REQUESTS]
    results = transcribe(Engine(CHECKPOINT, slots=4), stopping)
    for request, result in zip(REQUESTS, results, strict=True):
        assert result.tokens == alone(request).tokens
        assert not result.looped


def test_a_loop_is_cut_long_before_the_budget() -> None:
    """The target that repeats one word for ever: one copy is left, and few rounds are run."""
    stuck = tiny_checkpoint(max_target_positions=448)
    # The state behind the last norm is the same everywhere: its bias, the embedding of one token.
    weights = changed(stuck.weights, "decoder.norm.weight", lambda scale: scale.zero_())
    bias = weights["decoder.norm.bias"]
    weights = changed(weights, "decoder.embedding.weight", lambda rows: 0.01 * rows)
    weights["decoder.embedding.weight"][100] = bias
    engine = Engine(replace(stuck, weights=weights), slots=1)
    cut, whole = transcribe(
        engine,
        [Request(noise(1), language="en", stop_on_repetition=stops) for stops in (True, False)],
    )
    assert (cut.looped, whole.looped) == (True, False)
    assert len(whole.tokens) == 224
    assert cut.rounds < 40
    assert cut.tokens == whole.tokens[: len(cut.tokens)]
    assert len(cut.tokens) < 5


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("block", [0, 4])
def test_a_transcript_begins_with_its_prefix_and_goes_on_greedily(block: int, static: bool) -> None:
    """Whatever the company and the draft; the first word behind it does not lengthen its last."""
    requests = [
        Request(
            noise(i), language="en", prefix="abc"[: 1 + i % 3], prompt="xy"[: i % 2], draft_tokens=p
        )
        for i, p in enumerate([(), tuple(CHECKPOINT.tokens.encode(" abcd")), (5,) * 30] * 2)
    ]
    drafter = tiny_drafter(block=block) if block else None
    engine = Engine(CHECKPOINT, slots=4, drafter=drafter, static=static)
    for request, result in zip(requests, transcribe(engine, requests), strict=True):
        assert result.text.startswith(request.prefix)
        given = CHECKPOINT.tokens.encode(" " + request.prefix)
        assert list(result.tokens[: len(given)]) == given
        assert result.tokens == greedily(request, result.language)
        behind = CHECKPOINT.tokens.decode(result.tokens[len(given) : len(given) + 1])
        assert not behind.isalnum() or ord(behind) >= 0x530


def greedily(request: Request, language: str) -> tuple[int, ...]:
    """The transcript of a request with a prefix, one whole pass for each token."""
    tokens, config = CHECKPOINT.tokens, CHECKPOINT.config
    whisper = whisper_of(CHECKPOINT)
    sequence = Sequence(request, language)
    sequence.set_prompt(tokens, config.max_target_positions)
    cache = Cache.allocate(config, 1, torch.device("cpu"), torch.float32)
    mel = LogMel(config.num_mel_bins)([request.audio], config.max_source_positions)
    whisper.decoder.write_cross(whisper.encoder(mel), cache)
    said = list(sequence.prompt_tokens)
    while (
        len(said) - len(sequence.prompt_tokens) < sequence.max_new_tokens and said[-1] != tokens.eot
    ):
        encoder_len = torch.tensor([config.max_source_positions])
        text, none = torch.tensor([said]), torch.zeros(1, dtype=torch.int64)
        hidden, _ = whisper.decoder(text, none, encoder_len, cache, 64, int(encoder_len))
        scores = whisper.decoder.logits(hidden[0, -1]) + tokens.bias(first=False)
        if len(said) == len(sequence.prompt_tokens):
            scores += tokens.continuing()
        said.append(int(scores.argmax()))
    return tuple(said[len(sequence.prompt_tokens) - len(sequence.prefix) :])
