"""The window of speech: what it computes, and that decoding in it is exact as in any other."""

import random
from functools import cache

import numpy as np
import pytest
import torch

from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.whisper.mel import LogMel
from model.whisper.network import Whisper
from model.whisper.quantised import Precision, missing_instructions
from model.whisper.window import Window, WindowKind, Windows
from tests.support.oracles import proposers, run_shuffled
from tests.support.tiny import full_window, tiny_checkpoint
from tests.support.tiny_drafters import tiny_drafter
from tests.support.utterances import noise

CPU = torch.device("cpu")
FULL: WindowKind = "full"
SPEECH: WindowKind = "speech"
CHECKPOINT = tiny_checkpoint(max_source_positions=300)
# Windows of four lengths.
REQUESTS = [
    Request(noise(i, 2 + 4800 * i), language="en", prompt=("", "before")[i % 2]) for i in range(12)
]


@pytest.mark.parametrize(
    ("seconds", "own", "states"),
    [
        (0.1, 100, 801),
        (1.0, 100, 801),
        (1.01, 150, 826),
        (2.1, 200, 461),
        (7.0, 400, 576),
        (19.0, 1000, 1090),
        (19.1, 1500, 1500),
        (30.0, 1500, 1500),
    ],
)
def test_silence_is_sampled_behind_a_second_of_its_own(
    seconds: float, own: int, states: int
) -> None:
    """The longer the audio, the fewer samples; speech of over 19 s has Whisper's own window."""
    windows = Windows("speech", 1500)
    window = windows.fitting(int(seconds * 16_000))
    assert (window.own, window.states) == (own, states)
    assert window.convolved == own + (states < 1500)
    assert Windows("full", 1500).fitting(int(seconds * 16_000)).states == 1500
    assert windows.fitting(int(seconds * 16_000)) is window


@pytest.mark.parametrize(
    ("total", "steps"), [(307, (5, 5)), (1500, (2, 2)), (1500, (1, 1)), (1500, (5, 7))]
)
def test_each_state_counts_once(total: int, steps: tuple[int, int]) -> None:
    """Weights are logarithms of how many states each stands for, itself among them."""
    window = Window.over(100, total, steps)
    stands_for = torch.arange(window.states).repeat_interleave(window.weights.exp().round().long())
    assert len(stands_for) == total
    assert (window.positions[stands_for] - torch.arange(total)).abs().max() < max(steps)
    assert (window.positions.diff() > 0).all()


def test_static_shapes_have_few_windows() -> None:
    windows = Windows("speech", 1500, static=True)
    assert [window.own for window in windows.all()] == [1500, 1000, 750, 500, 250, 150, 100]
    assert windows.fitting(3 * 16_000).own == 250
    assert [window.own for window in Windows("full", 1500, static=True).all()] == [1500]


def whisper(dtype: torch.dtype = torch.float32, *, int8: bool = False) -> Whisper:
    return Whisper.from_weights(CHECKPOINT.config, CHECKPOINT.weights, CPU, dtype, int8=int8)


@torch.inference_mode()
def test_in_groups_of_one_it_is_the_full_window() -> None:
    """The last two states of a short log-mel are all that the long one's silence is made of."""
    mel, encoder = LogMel(80), whisper().encoder
    audio = noise(1, 10_000) * 0.1
    window = Window.over(100, 300, (1, 1))
    wanted = encoder(mel([audio], 300), full_window(300))
    assert torch.allclose(encoder(mel([audio], window.convolved), window), wanted, atol=1e-5)


@torch.inference_mode()
def test_a_row_is_encoded_as_it_is_alone() -> None:
    mel, encoder = LogMel(80), whisper().encoder
    audios = [noise(1, 10_000), noise(2, 3_000) * 0.01]
    window = Windows("speech", 300).fitting(10_000)
    both = encoder(mel(audios, window.convolved), window)
    for row, audio in enumerate(audios):
        alone = encoder(mel([audio], window.convolved), window)
        assert torch.allclose(both[row], alone[0], atol=1e-5)


@cache
def plain(request: Request, precision: Precision, *, static: bool) -> tuple[int, ...]:
    """Its tokens, alone and one pass a token. Static shapes have windows of their own."""
    alone = Engine(
        CHECKPOINT,
        slots=1,
        proposer=lambda _: None,
        precision=precision,
        window="speech",
        static=static,
    )
    return transcribe(alone, [request])[0].tokens


@pytest.mark.parametrize("name", ["none", "oracle", "perfect", "random", "adversarial", "reuse"])
@pytest.mark.parametrize(
    ("block", "slots", "static"), [(1, 4, False), (8, 1, False), (8, 5, False), (4, 3, True)]
)
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_speculation_changes_no_token_of_the_speech_window(
    precision: Precision, block: int, slots: int, static: bool, name: str
) -> None:
    """Rows of other windows beside it, joining and leaving; text and drafts; any block."""
    if precision == "int8" and missing_instructions():
        pytest.skip("this CPU has no int8 target")
    known = proposers(
        lambda request: plain(request, precision, static=static), REQUESTS, CHECKPOINT.tokens.eot
    )
    engine = Engine(
        CHECKPOINT,
        slots=slots,
        proposer=known[name],
        block=block,
        precision=precision,
        window="speech",
        static=static,
    )
    for one in run_shuffled(engine, REQUESTS, random.Random(f"{name} {slots}")):
        assert one.tokens == plain(one.request, precision, static=static)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_drafter_changes_no_token_of_the_speech_window(precision: Precision) -> None:
    if precision == "int8" and missing_instructions():
        pytest.skip("this CPU has no int8 target")
    drafter = tiny_drafter(checkpoint=CHECKPOINT)
    engine = Engine(CHECKPOINT, slots=4, drafter=drafter, precision=precision, window="speech")
    results = run_shuffled(engine, REQUESTS, random.Random(1))
    assert all(one.tokens == plain(one.request, precision, static=False) for one in results)
    assert sum(one.proposed for one in results) > 0


def test_windows_are_other_targets() -> None:
    """What is sampled is not nothing: the target's figures differ, if only a little."""
    full, speech = (
        transcribe(Engine(CHECKPOINT, slots=1, window=window), REQUESTS[:3])
        for window in (FULL, SPEECH)
    )
    for one, other in zip(full, speech, strict=True):
        assert one.no_speech != other.no_speech
        assert one.no_speech == pytest.approx(other.no_speech, rel=0.2)


def test_words_have_times_in_the_speech_window() -> None:
    engine = Engine(CHECKPOINT, slots=2, window="speech")
    for request in REQUESTS[2:5]:
        asked = Request(request.audio, language="en", prompt=request.prompt, words=True)
        (one,) = transcribe(engine, [asked])
        assert one.tokens == plain(request, "float32", static=False)
        assert one.timed
        assert np.isfinite([word.end for word in one.timed]).all()
        assert max(word.end for word in one.timed) <= len(request.audio) / 16_000
