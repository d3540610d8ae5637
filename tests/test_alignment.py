from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from model.engine.engine import Engine
from model.engine.offline import transcribe
from model.engine.requests import Request
from model.whisper import alignment
from tests.support.tiny import CHECKPOINT, tiny_tokens
from tests.support.utterances import noise

TOKENS = tiny_tokens()


def warp(cost: np.ndarray) -> float:
    """Dynamic time warping by its definition, cell by cell."""
    n, m = cost.shape
    total = np.full((n + 1, m + 1), np.inf)
    total[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            least = min(total[i - 1, j - 1], total[i - 1, j], total[i, j - 1])
            total[i, j] = cost[i - 1, j - 1] + least
    return float(total[n, m])


@given(
    st.tuples(st.integers(1, 6), st.integers(1, 9)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.floats(-5, 5, width=16))
    )
)
def test_the_path_is_monotonic_and_the_cheapest(cost: np.ndarray) -> None:
    rows, columns = alignment.cheapest_path(cost)
    assert (rows[0], columns[0]) == (0, 0)
    assert (rows[-1] + 1, columns[-1] + 1) == cost.shape
    steps = {*zip(np.diff(rows), np.diff(columns), strict=True)}
    assert steps <= {(0, 1), (1, 0), (1, 1)}
    assert cost[rows, columns].sum() == pytest.approx(warp(cost))


def test_tokens_begin_where_the_attention_turns_to_them() -> None:
    """Three tokens listen to 20, 30 and 50 states in turn; one of the heads is deaf."""
    edges = [0, 20, 50, 100]
    weights = torch.full((2, 3, 100), 0.01)
    for row, (start, stop) in enumerate(pairwise(edges)):
        weights[0, row, start:stop] = 0.5
    starts = alignment.token_starts(weights)
    assert starts.shape == (3,)
    assert np.abs(starts - edges[:3]).max() <= 3


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_starts_ascend_whatever_the_attention(tokens: int, states: int, seed: int) -> None:
    weights = torch.rand(3, tokens, states, generator=torch.Generator().manual_seed(seed))
    starts = alignment.token_starts(weights)
    assert starts.shape == (tokens,)
    assert (np.diff(starts) >= 0).all()
    assert starts[0] == 0
    assert starts[-1] < states


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        (" It's so, isn't it?", "en", [" It's", " so,", " isn't", " it?"]),
        (' He said: "No (never)."', "en", [" He", " said:", ' "No', ' (never)."']),
        (" one - two", "en", [" one", " - two"]),
        ("so", "en", ["so"]),
        ("今日は。", "ja", ["今", "日", "は。"]),
        (" Straße", "de", [" Straße"]),
        ("", "en", []),
    ],
)
def test_words_have_marks_and_are_all_the_text(text: str, language: str, words: list[str]) -> None:
    """A byte is a token here: characters of several bytes are kept whole."""
    tokens = TOKENS.encode(text)
    found = alignment.split_words(tokens, TOKENS, language)
    assert [word for word, _, _ in found] == words
    spans = [(first, stop) for _, first, stop in found]
    assert [edge for span in spans for edge in span][1:-1:2] == [a for a, _ in spans][1:]
    assert not spans or (spans[0][0], spans[-1][1]) == (0, len(tokens))


@given(st.lists(st.integers(0, 255), max_size=12))
def test_any_tokens_make_words_that_are_the_whole_text(tokens: list[int]) -> None:
    found = alignment.split_words(tokens, TOKENS, "en")
    assert [n for _, first, stop in found for n in range(first, stop)] == list(range(len(tokens)))


def test_times_lie_within_the_utterance() -> None:
    """The last state may reach a little behind the last sample."""
    tokens = TOKENS.encode(" ab c")
    starts = np.array([0, 10, 20, 40, 50, 51])
    probabilities = [0.5, 0.7, 0.9, 0.2, 0.4]
    first, second = alignment.timed_words(
        tokens, starts, np.arange(51), probabilities, TOKENS, "en", 1.01
    )
    assert (first.text, first.start, first.end) == ("ab", 0.0, 0.8)
    assert (second.text, second.start, second.end) == ("c", 0.8, 1.01)
    assert first.probability == pytest.approx(0.7)


@pytest.mark.parametrize("given_heads", [[[0, 5]], [[9, 0]], [], "all", [[0, 0, 0]]])
def test_heads_that_the_decoder_lacks_are_refused(given_heads: object) -> None:
    with pytest.raises(ValueError, match="alignment_heads must be pairs"):
        alignment.read_heads(given_heads, 4, 2)


def test_heads_are_the_checkpoints_own_or_those_of_the_upper_layers() -> None:
    assert alignment.read_heads([[3, 1], [2, 0]], 4, 2) == ((3, 1), (2, 0))
    assert alignment.read_heads(None, 4, 2) == ((2, 0), (2, 1), (3, 0), (3, 1))


@pytest.mark.parametrize("static", [False, True])
def test_asking_for_words_changes_no_token_of_anybody(static: bool) -> None:
    """The extra pass writes to its own slot alone; words come in any batch as alone."""
    requests = [
        Request(noise(i, 6000 + 3000 * i), language="en", words=i % 2 == 0, prefix="ab" * (i == 4))
        for i in range(6)
    ]
    together = transcribe(Engine(CHECKPOINT, slots=3, static=static), requests)
    for request, result in zip(requests, together, strict=True):
        (alone,) = transcribe(Engine(CHECKPOINT, slots=1), [request])
        (plain,) = transcribe(Engine(CHECKPOINT, slots=1), [replace(request, words=False)])
        assert result.tokens == plain.tokens
        if not request.words:
            assert result.timed is None
            continue
        assert result.timed is not None
        assert alone.timed is not None
        assert (
            "".join(word.text for word in result.timed).split()
            == "".join(result.text.split()).split()
        )
        edges = [edge for word in result.timed for edge in (word.start, word.end)]
        assert edges == sorted(edges)
        assert edges[-1] <= len(request.audio) / 16_000
        assert [word.start for word in result.timed] == pytest.approx(
            [word.start for word in alone.timed], abs=0.02
        )


def test_attention_weights_are_those_of_the_pass() -> None:
    """Rows sum to one over the audio; the hooks leave nothing behind."""
    engine = Engine(CHECKPOINT, slots=1)
    engine.admit(Request(noise(1), language="en"))
    engine.step()
    decoder = engine.runner.whisper.decoder
    weights, logits = alignment.attention(
        decoder, [257, 5, 6, 7], CHECKPOINT.heads, engine.runner.state.cache.rows(0, 1), 100, 25
    )
    assert weights.shape == (len(CHECKPOINT.heads), 4, 25)
    assert torch.allclose(weights.sum(-1), torch.ones(len(CHECKPOINT.heads), 4), atol=1e-5)
    assert logits.shape == (4, CHECKPOINT.tokens.vocabulary)
    asked = []
    for layer in decoder.layers:
        q = layer.get_submodule("cross.q")
        q.register_forward_hook(lambda *_: asked.append(1))
    zero = torch.zeros(1, dtype=torch.int64)
    cache = engine.runner.state.cache.rows(0, 1)
    decoder(torch.tensor([[257]]), zero, zero + 100, cache, 64, 100)
    assert len(asked) == len(decoder.layers), "a hook that was left would ask once more"


def test_pauses_are_in_no_word() -> None:
    """States 10 to 29 are silent, and some at either end: words meet around them."""
    audio = np.zeros(50 * 320, np.float32)
    audio[5 * 320 : 10 * 320] = audio[30 * 320 : 45 * 320] = 0.1
    sound = alignment.non_silent_states(audio)
    assert sound.tolist() == [*range(5, 10), *range(30, 45)]
    tokens = TOKENS.encode(" a b")
    found = alignment.timed_words(
        tokens, np.array([0, 2, 5, 12, 19]), sound, [0.9] * 4, TOKENS, "en", 1.0
    )
    assert [(word.start, word.end) for word in found] == [(0.1, 0.2), (0.6, 0.88)]
    assert len(alignment.non_silent_states(audio + 0.01)) == 50, "under noise"


def test_a_bump_makes_no_pause_of_soft_speech() -> None:
    audio = np.full(100 * 320, 0.01, np.float32)
    audio[60 * 320 : 61 * 320] = 0.9
    assert len(alignment.non_silent_states(audio)) == 100


@given(arrays(np.float32, st.integers(1, 3_000), elements=st.floats(-1, 1, width=32)))
def test_some_state_sounds_whatever_the_audio(audio: np.ndarray) -> None:
    sound = alignment.non_silent_states(audio)
    assert 1 <= len(sound) <= -(-len(audio) // 320)
    assert (np.diff(sound) > 0).all()
