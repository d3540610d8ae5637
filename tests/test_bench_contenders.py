import numpy as np
import pytest
import torch

from model.bench import contenders
from model.bench.clips import BenchError, Clip
from model.bench.paired_runs import rounds_of
from tests.support.tiny import CHECKPOINT
from tests.support.tiny_bench import clips

CLIPS = clips(6)
ENGINE = contenders.EngineUnderTest.plain(CHECKPOINT, device="cpu", slots=4, block=4)


def test_every_way_of_drafting_says_the_same() -> None:
    """Greedy tokens, alone and together; the drafted ones in fewer passes."""
    reference = contenders.reference_tokens(contenders.greedy(ENGINE, "en"), CLIPS)
    for chance in (0.0, 0.7, 1.0):
        transcriptions = contenders.simulated(ENGINE, "en", reference, chance, block=4).transcribe(
            CLIPS[:4]
        )
        assert [transcription.tokens for transcription in transcriptions] == [
            reference[clip] for clip in CLIPS[:4]
        ]
    whole = contenders.reuse(ENGINE, "en", reference).transcribe(CLIPS[:1])[0]
    assert (whole.tokens, whole.rounds) == (reference[CLIPS[0]], 0)


def test_a_perfect_drafter_fills_its_blocks() -> None:
    """Five tokens in a pass while there are five; with no drafter there is one."""
    reference = contenders.reference_tokens(contenders.greedy(ENGINE, "en"), CLIPS)
    plain = rounds_of(contenders.greedy(ENGINE, "en").transcribe(CLIPS))
    assert plain is not None
    assert (plain.alpha, plain.tau) == (None, 1.0)
    perfect = contenders.simulated(ENGINE, "en", reference, 1.0, block=4).transcribe(CLIPS)
    assert [r.rounds for r in perfect] == [-(-(len(r.tokens) - 1) // 5) for r in perfect]


def test_sampled_text_is_that_of_plain_sampling() -> None:
    """The same seed draws the same tokens, whatever is proposed."""
    hot = contenders.greedy(ENGINE, "en", temperature=0.8)
    reference = contenders.reference_tokens(hot, CLIPS)
    assert reference != contenders.reference_tokens(contenders.greedy(ENGINE, "en"), CLIPS)
    drafted = contenders.simulated(
        ENGINE, "en", reference, 0.7, block=4, temperature=0.8
    ).transcribe(CLIPS[:4])
    assert [transcription.tokens for transcription in drafted] == [
        reference[clip] for clip in CLIPS[:4]
    ]


def test_text_tokens_leave_special_ones_out() -> None:
    (transcription,) = contenders.greedy(ENGINE, "en").transcribe(CLIPS[:1])
    eot = ENGINE.engine.tokens.eot
    assert transcription.exact
    assert transcription.text_tokens == len(transcription.tokens) - (
        transcription.tokens[-1] == eot
    )


def test_the_encoder_alone_does_what_decoding_begins_with() -> None:
    """The keys and values that a request leaves behind; and it disturbs no later request."""
    (wanted,) = contenders.greedy(ENGINE, "en").transcribe(CLIPS[:1])
    keys = ENGINE.engine.runner.state.cache.cross_keys
    left = keys[:, 0].clone()
    keys.zero_()
    assert contenders.EncoderOnly(ENGINE.engine).transcribe(CLIPS[:1]) == []
    assert torch.allclose(keys[:, 0], left, atol=1e-5)
    assert contenders.greedy(ENGINE, "en").transcribe(CLIPS[:1])[0].tokens == wanted.tokens


def test_a_clip_that_cannot_be_decoded_is_named() -> None:
    long = Clip("long.wav", np.zeros(32_001, np.float32))
    with pytest.raises(
        BenchError, match=r"greedy cannot decode one of long.wav: an utterance is 2"
    ):
        contenders.greedy(ENGINE, "en").transcribe([long])
